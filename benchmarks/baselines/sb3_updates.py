"""Stable-Baselines3's updates on random rows: one request a line, one rate a line (updates/s).

A request is JSON: {"command": "make", "kind": "sac", "hidden": [64, 64]} or {"command": "run", "updates": 100}.
PPO's rate counts minibatches of 256.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.logger import configure

BATCH, ROWS = 256, 2048


class Random(gymnasium.Env):
    """Random observations, and no reward."""

    def __init__(self, obs_size: int, action_space: gymnasium.Space[Any]) -> None:
        self.observation_space = spaces.Box(-1.0, 1.0, (obs_size,), np.float32)
        self.action_space = action_space

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        return self.observation_space.sample(), {}

    def step(self, _: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {}


def make(kind: str, hidden: list[int]) -> Any:
    box = spaces.Box(-1.0, 1.0, (6,), np.float32)
    policy = {"net_arch": hidden}
    if kind == "ppo":
        env = Random(4, spaces.Discrete(2))
        model: Any = PPO(
            "MlpPolicy", env, n_steps=ROWS, batch_size=BATCH, n_epochs=1, policy_kwargs=policy, device="cpu"
        )
        model.learn(ROWS)
    else:
        env = Random(4, spaces.Discrete(2)) if kind == "dqn" else Random(17, box)
        cls = {"dqn": DQN, "sac": SAC, "td3": TD3}[kind]
        options = {"learning_starts": ROWS, "batch_size": BATCH, "policy_kwargs": policy, "device": "cpu"}
        model = cls("MlpPolicy", env, buffer_size=ROWS, **options)
        model.learn(ROWS)
    model.set_logger(configure(None, []))
    return model


def rate(model: Any, updates: int) -> float:
    began_s = time.perf_counter()
    if isinstance(model, PPO):
        rounds = max(1, updates * BATCH // ROWS)
        for _ in range(rounds):
            model.train()
        return rounds * ROWS / BATCH / (time.perf_counter() - began_s)
    model.train(updates, BATCH)
    return updates / (time.perf_counter() - began_s)


def main() -> None:
    torch.set_num_threads(1)
    model: Any = None
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["command"] == "make":
            model = make(asked["kind"], asked["hidden"])
            rate(model, 16)
            print("true", flush=True)
        else:
            print(rate(model, asked["updates"]), flush=True)


if __name__ == "__main__":
    main()
