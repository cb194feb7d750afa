"""Stable-Baselines3's PPO on Pong: env steps a second of acting and learning together.

python sb3_atari_peer.py ENVS --steps N --threads N     prints {"env_steps_per_s"} as JSON
"""

from __future__ import annotations

import argparse
import json
import time

import ale_py
import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecFrameStack


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("envs", type=int)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    gymnasium.register_envs(ale_py)
    env = VecFrameStack(make_atari_env("ALE/Pong-v5", n_envs=asked.envs, env_kwargs={"frameskip": 1}), 4)
    settings = {"n_steps": 128, "batch_size": 256, "n_epochs": 4, "learning_rate": 2.5e-4, "clip_range": 0.1}
    model = PPO("CnnPolicy", env, **settings, ent_coef=0.01, vf_coef=0.5, device="cpu")
    started_s = time.perf_counter()
    model.learn(asked.steps)
    print(json.dumps({"env_steps_per_s": model.num_timesteps / (time.perf_counter() - started_s)}))


if __name__ == "__main__":
    main()
