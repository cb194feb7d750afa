"""RLlib: DQN with two env runners under Tune, which restores a failed trial from its checkpoint.

python rllib_run.py FOLDER TASK
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import ray
from ray import tune
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.tune.registry import register_env

from benchmarks.kill_test.tally import FOLDER, SEED, CountedCartPole, Tally, seed


class Counting(RLlibCallback):
    """Counts in the process of the algorithm, whose learner is local."""

    def __init__(self) -> None:
        super().__init__()
        self._tallies: dict[str, Tally] = {}
        self._last: float | None = None

    def on_train_result(self, *, algorithm: Any, result: dict[str, Any], **keywords: Any) -> None:
        self._tallies = self._tallies or {kind: Tally(kind) for kind in ("updates", "counted", "learned", "stored")}
        steps = result.get("env_runners", {}).get("num_env_steps_sampled_lifetime", 0)
        module = result.get("learners", {}).get("default_policy", {})
        updates = module.get("num_module_steps_trained_lifetime", 0) // 64
        self._tallies["updates"].add(int(updates - (updates if self._last is None else self._last)))
        self._last = updates
        self._tallies["learned"].set(int(updates))
        self._tallies["counted"].set(int(steps))
        self._tallies["stored"].set(int(algorithm.local_replay_buffer.get_num_timesteps()))


def _scaled(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Make images as RLlib's convolutions take them, with numbers from 0 to 1, channels last."""
    channels, height, width = env.observation_space.shape or ()
    space = gymnasium.spaces.Box(0.0, 1.0, (height, width, channels), np.float32)
    convert = lambda obs: np.moveaxis(obs, 0, -1).astype(np.float32) / 255.0  # noqa: E731
    return gymnasium.wrappers.TransformObservation(env, convert, space)


def main() -> None:
    folder, task = sys.argv[1:]
    is_frames = task == "frames"
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=f"/tmp/ray-{os.getpid()}",
        object_store_memory=200_000_000,
        runtime_env={
            "env_vars": {FOLDER: os.environ[FOLDER], SEED: str(seed()), "PYTHONPATH": os.environ["PYTHONPATH"]}
        },
    )
    register_env("counted", lambda _: _scaled(CountedCartPole(frames=True)) if is_frames else CountedCartPole())
    config = (
        DQNConfig()
        .environment("counted")
        .env_runners(num_env_runners=2, num_envs_per_env_runner=2, rollout_fragment_length=8)
        .training(
            lr=1e-3,
            train_batch_size_per_learner=32 if is_frames else 64,
            training_intensity=4.0 if is_frames else 8.0,
            num_steps_sampled_before_learning_starts=1000,
            target_network_update_freq=500,
            replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 50_000},
            epsilon=[(0, 1.0), (6000, 0.05)],
        )
        .reporting(min_time_s_per_iteration=1, min_sample_timesteps_per_iteration=100)
        .callbacks(Counting)
        .debugging(seed=seed())
        .fault_tolerance(restart_failed_env_runners=True)
    )
    storage = Path(folder) / "results"
    if tune.Tuner.can_restore(str(storage / "run")):
        tuner = tune.Tuner.restore(str(storage / "run"), "DQN", resume_unfinished=True, resume_errored=True)
    else:
        tuner = tune.Tuner(
            "DQN",
            param_space=config,
            run_config=tune.RunConfig(
                name="run",
                storage_path=str(storage),
                failure_config=tune.FailureConfig(max_failures=-1),
                checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=10, num_to_keep=2),
                verbose=0,
            ),
        )
    tuner.fit()


if __name__ == "__main__":
    gymnasium.logger.min_level = gymnasium.logger.ERROR
    main()
