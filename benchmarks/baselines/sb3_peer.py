"""Stable-Baselines3, sb3-contrib (TQC) or sbx-rl, on one task with the settings of one of Surreal's presets.

    python sb3_peer.py PRESET [--library sbx] [--threads N] [--seed N] --goal RETURN
        prints {"return", "env_steps"} as JSON when its policy reaches the goal, or at the end of its env steps
    python sb3_peer.py PRESET [--library sbx] [--threads N] --steps N --warm-up N
        prints {"env_steps_per_s"}: without evaluation, and without the first env steps, in which its code is compiled

It evaluates as Surreal does: 20 episodes without exploration, and 100 more if their mean reaches the goal. This happens
a hundred times within the budget, because SB3 cannot evaluate while it learns.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize


def _linear(start: float) -> Any:
    return lambda left: left * start


def _layers(units: int) -> dict[str, Any]:
    return {"net_arch": {"pi": [units, units], "vf": [units, units]}}


def cartpole_ppo(library: Any, seed: int) -> Any:
    env = make_vec_env("CartPole-v1", n_envs=8, seed=seed)
    settings = {"n_steps": 32, "batch_size": 256, "n_epochs": 20, "gae_lambda": 0.8, "gamma": 0.98, "ent_coef": 0.0}
    rates = {"learning_rate": _linear(1e-3), "clip_range": _linear(0.2), "max_grad_norm": 0.5, "vf_coef": 0.5}
    return library.PPO("MlpPolicy", env, **settings, **rates, policy_kwargs=_layers(64), seed=seed, device="cpu")


def pendulum_ppo(library: Any, seed: int) -> Any:
    env = VecNormalize(make_vec_env("Pendulum-v1", n_envs=8, seed=seed), norm_obs=False, gamma=0.9)
    settings = {"n_steps": 256, "batch_size": 128, "n_epochs": 10, "gae_lambda": 0.95, "gamma": 0.9, "ent_coef": 0.0}
    rates = {"learning_rate": 1e-3, "clip_range": 0.2, "max_grad_norm": 0.5, "vf_coef": 0.5}
    return library.PPO("MlpPolicy", env, **settings, **rates, policy_kwargs=_layers(64), seed=seed, device="cpu")


def halfcheetah_ppo(library: Any, seed: int) -> Any:
    env = VecNormalize(make_vec_env("HalfCheetah-v5", n_envs=4, seed=seed), gamma=0.98)
    settings = {"n_steps": 128, "batch_size": 64, "n_epochs": 20, "gae_lambda": 0.92, "gamma": 0.98, "ent_coef": 4e-4}
    rates = {"learning_rate": 2.06e-5, "clip_range": 0.1, "max_grad_norm": 0.8, "vf_coef": 0.58}
    network = {**_layers(256), "log_std_init": -2, "ortho_init": False, "activation_fn": torch.nn.ReLU}
    return library.PPO("MlpPolicy", env, **settings, **rates, policy_kwargs=network, seed=seed, device="cpu")


def cartpole_dqn(library: Any, seed: int) -> Any:
    env = make_vec_env("CartPole-v1", n_envs=16, seed=seed)
    settings = {"batch_size": 128, "gamma": 0.99, "n_steps": 3, "buffer_size": 50_000, "learning_starts": 1000}
    # 32 samples an env step are 4 updates of 128 for 16 env steps, and the target is copied every 50 updates.
    pace = {"train_freq": 1, "gradient_steps": 4, "target_update_interval": 200, "learning_rate": 2.3e-3}
    explore: dict[str, Any] = {"exploration_fraction": 0.1, "exploration_final_eps": 0.05}
    if library.__name__ == "stable_baselines3":
        explore["max_grad_norm"] = 10.0  # sbx-rl has none
    network = {"net_arch": [128, 128]}
    return library.DQN("MlpPolicy", env, **settings, **pace, **explore, policy_kwargs=network, seed=seed, device="cpu")


def lunarlander_ppo(library: Any, seed: int) -> Any:
    env = make_vec_env("LunarLander-v3", n_envs=16, seed=seed)
    settings = {"n_steps": 1024, "batch_size": 64, "n_epochs": 4, "gae_lambda": 0.98, "gamma": 0.999, "ent_coef": 0.01}
    rates = {"learning_rate": 3e-4, "clip_range": 0.2, "max_grad_norm": 0.5, "vf_coef": 0.5}
    return library.PPO("MlpPolicy", env, **settings, **rates, policy_kwargs=_layers(64), seed=seed, device="cpu")


def lunarlander_dqn(library: Any, seed: int) -> Any:
    env = make_vec_env("LunarLander-v3", n_envs=8, seed=seed)
    settings = {"batch_size": 128, "gamma": 0.99, "buffer_size": 50_000, "learning_starts": 1000}
    pace = {"train_freq": 1, "gradient_steps": 8, "target_update_interval": 250, "learning_rate": 6.3e-4}
    explore = {"exploration_fraction": 0.12, "exploration_final_eps": 0.1, "max_grad_norm": 10.0}
    network = {"net_arch": [256, 256]}
    return library.DQN("MlpPolicy", env, **settings, **pace, **explore, policy_kwargs=network, seed=seed, device="cpu")


def _sac(library: Any, seed: int, task: str, kind: str, units: int, rate: float, stored: int) -> Any:
    env = make_vec_env(task, n_envs=4, seed=seed)
    settings: dict[str, Any] = {
        "batch_size": 256,
        "gamma": 0.99,
        "buffer_size": stored,
        "learning_starts": 1000,
        "tau": 0.005,
    }
    pace = {"train_freq": 1, "gradient_steps": 4, "learning_rate": rate}
    network: dict[str, Any] = {"net_arch": [units, units]}
    if kind == "TQC":
        settings["top_quantiles_to_drop_per_net"] = 2
        network |= {"n_critics": 2, "n_quantiles": 25}
    make = getattr(library, kind)
    return make("MlpPolicy", env, **settings, **pace, policy_kwargs=network, seed=seed, device="cpu")


_PENDULUM = {"task": "Pendulum-v1", "units": 64, "rate": 1e-3, "stored": 20_000}
_HALFCHEETAH = {"task": "HalfCheetah-v5", "units": 256, "rate": 3e-4, "stored": 1_000_000}


class _UntilSolved(BaseCallback):
    """A callback that ends the training when the policy reaches the goal."""

    def __init__(self, env: Any, goal: float, every: int) -> None:
        super().__init__()
        self._env, self._goal, self._every = env, goal, every
        self.mean_return, self._next = -np.inf, every

    def _on_step(self) -> bool:
        if self.num_timesteps < self._next:
            return True
        self._next += self._every
        self.mean_return = self._play(20)
        if self.mean_return >= self._goal:
            self.mean_return = self._play(100)
        return self.mean_return < self._goal

    def _play(self, episodes: int) -> float:
        mean, _ = evaluate_policy(self.model, self._env, n_eval_episodes=episodes, warn=False)
        return float(mean)


class _Clock(BaseCallback):
    """A callback that notes when the first rollout after the warm-up starts."""

    def __init__(self, warm_up: int) -> None:
        super().__init__()
        self._warm_up, self.first_steps, self.started_s = warm_up, 0, 0.0

    def _on_rollout_start(self) -> None:
        if not self.started_s and self.num_timesteps >= self._warm_up:
            self.first_steps, self.started_s = self.num_timesteps, time.perf_counter()

    def _on_step(self) -> bool:
        return True


#: Function that builds each preset's algorithm, and its env steps.
_TRAINED = {
    "cartpole-ppo": (cartpole_ppo, 100_000),
    "pendulum-ppo": (pendulum_ppo, 100_000),
    "halfcheetah-ppo": (halfcheetah_ppo, 1_000_000),
    "cartpole-dqn": (cartpole_dqn, 60_000),
    "pendulum-sac": (partial(_sac, kind="SAC", **_PENDULUM), 20_000),
    "pendulum-tqc": (partial(_sac, kind="TQC", **_PENDULUM), 20_000),
    "lunarlander-ppo": (lunarlander_ppo, 1_000_000),
    "lunarlander-dqn": (lunarlander_dqn, 100_000),
    "halfcheetah-sac": (partial(_sac, kind="SAC", **_HALFCHEETAH), 1_000_000),
    "halfcheetah-tqc": (partial(_sac, kind="TQC", **_HALFCHEETAH), 1_000_000),
}

#: Tasks of presets that have a goal here.
_TASKS = {"cartpole": "CartPole-v1", "pendulum": "Pendulum-v1", "lunarlander": "LunarLander-v3"}


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("preset", choices=_TRAINED)
    parser.add_argument("--library", help="default: the one of Stable-Baselines3's that has the algorithm")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--goal", type=float)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--warm-up", type=int, default=0)
    asked = parser.parse_args(argv)
    torch.set_num_threads(asked.threads)
    os.environ["NPROC"] = str(asked.threads)  # JAX's threads, before it is imported
    make, budget = _TRAINED[asked.preset]
    library = asked.library or ("sb3_contrib" if asked.preset.endswith("tqc") else "stable_baselines3")
    model = make(import_module(library), asked.seed)
    if asked.goal is None:
        clock = _Clock(asked.warm_up)
        model.learn(asked.steps, callback=clock)
        steps, seconds = model.num_timesteps - clock.first_steps, time.perf_counter() - clock.started_s
        print(json.dumps({"env_steps_per_s": steps / seconds}))
        return
    task = _TASKS[asked.preset.partition("-")[0]]
    watch = _UntilSolved(make_vec_env(task, n_envs=20, seed=asked.seed + 1000), asked.goal, budget // 100)
    model.learn(budget, callback=watch)
    print(json.dumps({"return": watch.mean_return, "env_steps": model.num_timesteps}))


if __name__ == "__main__":
    main(sys.argv[1:])
