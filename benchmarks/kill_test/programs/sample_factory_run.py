"""Sample Factory: asynchronous APPO with two rollout workers, and checkpoints.

python sample_factory_run.py FOLDER TASK
"""

from __future__ import annotations

import sys
from typing import Any

from sample_factory.algo.learning.learner import Learner
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl

from benchmarks.kill_test.tally import CountedCartPole, Tally, seed

_train = Learner.train
_tallies: dict[str, Tally] = {}


def _counting_train(self: Learner, batch: Any) -> Any:
    """Train, and count; processes of Sample Factory import this file, and therefore have it too."""
    before = self.train_step
    found = _train(self, batch)
    for kind in ("updates", "counted", "learned"):
        _tallies.setdefault(kind, Tally(kind))
    _tallies["updates"].add(self.train_step - before)
    _tallies["learned"].set(self.train_step)
    _tallies["counted"].set(self.env_steps)
    return found


Learner.train = _counting_train


def _make(name: str, *_: Any, **__: Any) -> CountedCartPole:
    return CountedCartPole(frames=name == "frames")


def main() -> None:
    folder, task = sys.argv[1:]
    register_env(task, _make)
    given = {
        "env": task, "experiment": "run", "train_dir": folder, "device": "cpu", "algo": "APPO", "seed": seed(),
        "num_workers": 2, "num_envs_per_worker": 4, "worker_num_splits": 2, "rollout": 32, "recurrence": 1,
        "batch_size": 256, "num_batches_per_epoch": 1, "num_epochs": 4, "train_for_env_steps": 1_000_000_000,
        "use_rnn": False, "env_frameskip": 1, "learning_rate": 1e-3, "gamma": 0.99, "async_rl": True,
        "serial_mode": False, "save_every_sec": 10, "restart_behavior": "resume", "set_workers_cpu_affinity": False,
        "with_vtrace": False, "normalize_input": task != "frames", "obs_scale": 255.0 if task == "frames" else 1.0,
    }  # fmt: skip
    arguments = [f"--{name}={value}" for name, value in given.items()]
    parser, _ = parse_sf_args(arguments)
    sys.exit(run_rl(parse_full_cfg(parser, arguments)))


if __name__ == "__main__":
    main()
