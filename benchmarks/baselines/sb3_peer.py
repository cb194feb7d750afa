"""Stable-Baselines3 on one task until it is solved, with the settings of one of Surreal's presets.

    python sb3_peer.py PRESET SEED GOAL     prints {"return", "env_steps", "env_steps_per_s"} as JSON

It evaluates as Surreal does: 20 episodes without exploration, and 100 more if their mean reaches the goal. This happens
a hundred times within the budget, because SB3 cannot evaluate while it learns, and never if GOAL is inf.
`env_steps_per_s` excludes the time of evaluations.
"""

from __future__ import annotations

import json
import math
import sys
import time
from typing import Any

import numpy as np
import torch
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

_NET = {"pi": [64, 64], "vf": [64, 64]}


def _linear(start: float) -> Any:
    return lambda left: left * start


def cartpole_ppo(seed: int) -> Any:
    env = make_vec_env("CartPole-v1", n_envs=8, seed=seed)
    settings = {"n_steps": 32, "batch_size": 256, "n_epochs": 20, "gae_lambda": 0.8, "gamma": 0.98, "ent_coef": 0.0}
    rates = {"learning_rate": _linear(1e-3), "clip_range": _linear(0.2), "max_grad_norm": 0.5, "vf_coef": 0.5}
    return PPO("MlpPolicy", env, **settings, **rates, policy_kwargs={"net_arch": _NET}, seed=seed, device="cpu")


def pendulum_ppo(seed: int) -> Any:
    env = VecNormalize(make_vec_env("Pendulum-v1", n_envs=8, seed=seed), norm_obs=False, gamma=0.9)
    settings = {"n_steps": 256, "batch_size": 128, "n_epochs": 10, "gae_lambda": 0.95, "gamma": 0.9, "ent_coef": 0.0}
    rates = {"learning_rate": 1e-3, "clip_range": 0.2, "max_grad_norm": 0.5, "vf_coef": 0.5}
    return PPO("MlpPolicy", env, **settings, **rates, policy_kwargs={"net_arch": _NET}, seed=seed, device="cpu")


def cartpole_dqn(seed: int) -> Any:
    env = make_vec_env("CartPole-v1", n_envs=16, seed=seed)
    settings = {"batch_size": 128, "gamma": 0.99, "n_steps": 3, "buffer_size": 50_000, "learning_starts": 1000}
    # 32 samples an env step are 4 updates of 128 for 16 env steps, and the target is copied every 50 updates.
    pace = {"train_freq": 1, "gradient_steps": 4, "target_update_interval": 200, "learning_rate": 2.3e-3}
    explore = {"exploration_fraction": 0.1, "exploration_final_eps": 0.05, "max_grad_norm": 10.0}
    network = {"net_arch": [128, 128]}
    return DQN("MlpPolicy", env, **settings, **pace, **explore, policy_kwargs=network, seed=seed, device="cpu")


def pendulum_sac(seed: int) -> Any:
    env = make_vec_env("Pendulum-v1", n_envs=4, seed=seed)
    settings = {"batch_size": 256, "gamma": 0.99, "buffer_size": 20_000, "learning_starts": 1000, "tau": 0.005}
    pace = {"train_freq": 1, "gradient_steps": 4, "learning_rate": 1e-3}
    return SAC("MlpPolicy", env, **settings, **pace, policy_kwargs={"net_arch": [64, 64]}, seed=seed, device="cpu")


class _UntilSolved(BaseCallback):
    """A callback that ends the training when the policy reaches the goal."""

    def __init__(self, env: Any, goal: float, every: int) -> None:
        super().__init__()
        self._env, self._goal, self._every = env, goal, every
        self.mean_return, self.evaluation_s, self._next = -np.inf, 0.0, every

    def _on_step(self) -> bool:
        if self.num_timesteps < self._next:
            return True
        self._next += self._every
        started_s = time.perf_counter()
        self.mean_return = self._play(20)
        if self.mean_return >= self._goal:
            self.mean_return = self._play(100)
        self.evaluation_s += time.perf_counter() - started_s
        return self.mean_return < self._goal

    def _play(self, episodes: int) -> float:
        mean, _ = evaluate_policy(self.model, self._env, n_eval_episodes=episodes, warn=False)
        return float(mean)


#: Function that builds each preset's algorithm, and its env steps.
_TRAINED = {
    "cartpole-ppo": (cartpole_ppo, 100_000),
    "pendulum-ppo": (pendulum_ppo, 100_000),
    "cartpole-dqn": (cartpole_dqn, 60_000),
    "pendulum-sac": (pendulum_sac, 20_000),
}


def main(preset: str, seed: int, goal: float) -> None:
    torch.set_num_threads(1)
    make, budget = _TRAINED[preset]
    model = make(seed)
    task = "CartPole-v1" if preset.startswith("cartpole") else "Pendulum-v1"
    watch = _UntilSolved(make_vec_env(task, n_envs=20, seed=seed + 1000), goal, budget // 100)
    started_s = time.perf_counter()
    model.learn(budget, callback=None if math.isinf(goal) else watch)
    learning_s = time.perf_counter() - started_s - watch.evaluation_s
    found = {"return": watch.mean_return, "env_steps": model.num_timesteps}
    print(json.dumps({**found, "env_steps_per_s": model.num_timesteps / learning_s}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
