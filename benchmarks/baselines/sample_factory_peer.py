"""Sample Factory's APPO on Pong: env steps a second of acting and learning together.

    python sample_factory_peer.py ENVS EPOCHS --steps N     prints {"env_steps_per_s"} as JSON

Network (Mnih et al. 2015: three convolutions and 512 units), preprocessing, environments and updates are the same as in
Surreal: EPOCHS over each batch of ENVS x 128 steps, in minibatches of 256.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from typing import Any

import ale_py
import cv2
import gymnasium
import numpy as np
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner

cv2.setNumThreads(1)


class Pong(gymnasium.Env[Any, Any]):
    """Pong in gray, 84x84, with four frames a step, the last two joined, stacks of four, reward signs and no-ops."""

    render_mode = None

    def __init__(self, seed: int) -> None:
        self._ale = ale_py.ALEInterface()
        self._ale.setInt("random_seed", seed)
        self._ale.setFloat("repeat_action_probability", 0.0)
        self._ale.loadROM(ale_py.roms.get_rom_path("pong"))
        self._actions = self._ale.getMinimalActionSet()
        self._rng = np.random.default_rng(seed)
        self.observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(self._actions))
        self._frames = np.zeros((4, 84, 84), np.uint8)

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        self._ale.reset_game()
        for _ in range(self._rng.integers(1, 31)):
            self._ale.act(0)
        self._frames[:] = self._shrink(self._ale.getScreenGrayscale())
        return self._frames.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, screens = 0.0, []
        for frame in range(4):
            reward += self._ale.act(self._actions[action])
            if frame >= 2:
                screens.append(self._ale.getScreenGrayscale())
        self._frames = np.roll(self._frames, -1, 0)
        self._frames[-1] = self._shrink(np.maximum(*screens))
        return self._frames.copy(), float(np.sign(reward)), self._ale.game_over(), False, {}

    def render(self) -> None:
        return None

    @staticmethod
    def _shrink(screen: Any) -> Any:
        return cv2.resize(screen, (84, 84), interpolation=cv2.INTER_AREA)


def make_pong(_name: str, _cfg: Any, env_config: Any, *_: Any, **__: Any) -> Pong:
    """Make an environment; Sample Factory calls this."""
    return Pong(0 if env_config is None else env_config["env_id"])


def main(envs: int, epochs: int, steps: int) -> None:
    register_env("surreal_pong", make_pong)
    workers = 2
    with tempfile.TemporaryDirectory() as folder:
        given = {
            "env": "surreal_pong", "experiment": "pong", "train_dir": folder, "device": "cpu", "algo": "APPO",
            "num_workers": workers, "num_envs_per_worker": envs // workers, "worker_num_splits": 2,
            "rollout": 128, "recurrence": 1, "batch_size": 256, "num_batches_per_epoch": envs * 128 // 256,
            "num_epochs": epochs, "train_for_env_steps": steps, "use_rnn": False, "env_frameskip": 1,
            "encoder_conv_architecture": "convnet_atari", "encoder_conv_mlp_layers": 512, "nonlinearity": "relu",
            "normalize_input": False, "normalize_returns": False, "obs_scale": 255.0, "learning_rate": 2.5e-4,
            "gamma": 0.99, "gae_lambda": 0.95, "ppo_clip_ratio": 0.1, "value_loss_coeff": 0.5, "max_grad_norm": 0.5,
            "exploration_loss_coeff": 0.01, "async_rl": True, "with_vtrace": False, "serial_mode": False,
            "save_every_sec": 100_000, "save_best_every_sec": 100_000, "set_workers_cpu_affinity": False,
        }  # fmt: skip
        arguments = [f"--{name}={value}" for name, value in given.items()]
        parser, _ = parse_sf_args(arguments)
        _, runner = make_runner(parse_full_cfg(parser, arguments))
        runner.init()
        started_s = time.perf_counter()
        runner.run()
        seconds = time.perf_counter() - started_s
        collected = sum(runner.env_steps.values())
    print(json.dumps({"env_steps_per_s": collected / seconds, "env_steps": collected}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("envs", type=int)
    parser.add_argument("epochs", type=int)
    parser.add_argument("--steps", type=int, required=True)
    asked = parser.parse_args()
    main(asked.envs, asked.epochs, asked.steps)
