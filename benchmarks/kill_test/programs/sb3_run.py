"""Stable-Baselines3: DQN with two environments in processes, and checkpoints with the replay buffer.

python sb3_run.py FOLDER TASK
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import SubprocVecEnv

from benchmarks.kill_test.tally import CountedCartPole, Tally, seed

_CHECKPOINT_S = 10.0


class Counting(BaseCallback):
    """Counts, and writes a checkpoint of model and replay buffer into a new folder each 10 s."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._tallies = {kind: Tally(kind) for kind in ("updates", "counted", "learned", "stored")}
        self._began_s = time.monotonic()
        self._last: int | None = None

    def _on_step(self) -> bool:
        model = self.model
        assert isinstance(model, DQN)
        self._tallies["updates"].add(model._n_updates - (model._n_updates if self._last is None else self._last))
        self._last = model._n_updates
        self._tallies["learned"].set(model._n_updates)
        self._tallies["counted"].set(model.num_timesteps)
        self._tallies["stored"].set(model.replay_buffer.size() * model.n_envs)
        if time.monotonic() - self._began_s > _CHECKPOINT_S:
            self._began_s = time.monotonic()
            self._save(model)
        return True

    def _save(self, model: DQN) -> None:
        """Write two files after each other, as CheckpointCallback does; the newest pair is loaded."""
        new = self._folder / f"rl_model_{model.num_timesteps}_steps"
        new.mkdir(exist_ok=True)
        model.save(new / "model")
        model.save_replay_buffer(new / "replay")
        (new / "whole").touch()
        for old in self._folder.glob("rl_model_*"):
            if old != new:
                shutil.rmtree(old)


def main() -> None:
    torch.set_num_threads(1)
    folder, task = sys.argv[1:]
    is_frames = task == "frames"
    envs = SubprocVecEnv([lambda: CountedCartPole(frames=is_frames)] * 2, start_method="fork")
    found = sorted((path.stat().st_mtime, path.parent) for path in Path(folder).glob("rl_model_*/whole"))
    if found:
        model = DQN.load(found[-1][1] / "model", env=envs, device="cpu")
        model.load_replay_buffer(found[-1][1] / "replay")
    else:
        model = DQN(
            "CnnPolicy" if is_frames else "MlpPolicy",
            envs,
            # Those of RL Baselines3 Zoo for CartPole, and its ratio of updates for images.
            learning_rate=2.3e-3,
            buffer_size=10_000 if is_frames else 50_000,
            learning_starts=1000,
            batch_size=32 if is_frames else 64,
            train_freq=4 if is_frames else 128,
            gradient_steps=1 if is_frames else 128,
            target_update_interval=10,
            exploration_fraction=8e-6,
            exploration_final_eps=0.04,
            policy_kwargs={} if is_frames else {"net_arch": [256, 256]},
            device="cpu",
            seed=seed(),
        )
    model.learn(1_000_000_000, callback=Counting(Path(folder)), reset_num_timesteps=not found)


if __name__ == "__main__":
    main()
