"""Stable-Baselines3 or sb3-contrib on one task, with the settings and the program of RL Baselines3 Zoo.

    python zoo_peer.py ALGORITHM ENV SEED FOLDER [--episodes N] [--steps N]

It trains for the Zoo's number of env steps, or `--steps`, and evaluates 25 times on the way, with 20 episodes each. The
policy of the best evaluation then plays fresh episodes. Prints {"return", "standard_error", "episodes", "env_steps"} as
JSON; `env_steps` are those of all training.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import sys
from typing import Any

import numpy as np
import torch
from rl_zoo3.exp_manager import ExperimentManager
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv, VecNormalize, sync_envs_normalization

_EVALUATIONS, _EPISODES, _NUM_ENVS = 25, 20, 10


class _Best(BaseCallback):
    """A callback that evaluates the policy, and keeps the best one."""

    def __init__(self, env: VecEnv, every: int) -> None:
        super().__init__()
        self._env, self._every, self._next, self._best = env, every, every, -math.inf

    def _on_step(self) -> bool:
        if self.num_timesteps >= self._next:
            self._next += self._every
            self._evaluate()
        return True

    def _on_training_end(self) -> None:
        self._evaluate()

    def _evaluate(self) -> None:
        sync_envs_normalization(self.training_env, self._env)
        mean, _ = evaluate_policy(self.model, self._env, n_eval_episodes=_EPISODES)
        if float(mean) >= self._best:
            self._best = float(mean)
            self._weights = copy.deepcopy(self.model.policy.state_dict())
            self._statistics = copy.deepcopy(getattr(self._env, "obs_rms", None))

    def play(self, model: Any, episodes: int) -> list[float]:
        """Play with the best policy; returns the return of each episode."""
        model.policy.load_state_dict(self._weights)
        if isinstance(self._env, VecNormalize):
            self._env.obs_rms = self._statistics
        returns, _ = evaluate_policy(model, self._env, n_eval_episodes=episodes, return_episode_rewards=True)
        return [float(each) for each in returns]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm")
    parser.add_argument("env")
    parser.add_argument("seed", type=int)
    parser.add_argument("folder", help="for the Zoo's own files")
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=0, help="train for as many env steps instead of the Zoo's")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    manager = ExperimentManager(
        argparse.Namespace(), asked.algorithm, asked.env, asked.folder, seed=asked.seed, n_timesteps=asked.steps,
        eval_freq=-1, log_interval=-1, n_eval_envs=_NUM_ENVS, device="cpu", verbose=0,
    )  # fmt: skip
    experiment = manager.setup_experiment()
    assert experiment is not None
    model, _ = experiment
    env = manager.create_envs(_NUM_ENVS, eval_env=True, no_log=True)
    env.seed(asked.seed + 1_000_000)
    best = _Best(env, max(1, manager.n_timesteps // _EVALUATIONS))
    manager.callbacks.append(best)
    manager.learn(model)
    returns = best.play(model, asked.episodes)
    error = float(np.std(returns, ddof=1)) / math.sqrt(len(returns))
    found = {"return": float(np.mean(returns)), "standard_error": error, "episodes": len(returns)}
    sys.stdout.write(json.dumps({**found, "env_steps": int(model.num_timesteps)}) + "\n")


if __name__ == "__main__":
    main()
