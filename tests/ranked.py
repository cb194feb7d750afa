"""The same learning in one process and in several: batches, their parts, and a learner, the same wherever it is made.

    python -m tests.ranked JOB FOLDER       a rank in a process of its own, its place in torchrun's variables

It leaves `FOLDER/rank-N.safetensors`, all tensors of its learner, or `FOLDER/rank-N.error`. The jobs:

learn   learns from its part of each batch
die     the last rank is killed in the middle
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from surreal.base.errors import RankError
from surreal.base.types import Batch, SampleInfo
from surreal.learner import DQNLearner, GradientLearner
from surreal.learner.stepping.ranks import Ranks
from surreal.model import QFunction

UPDATES, ROWS = 8, 32


def make_batch(seed: int, rows: int = ROWS) -> Batch:
    """Random transitions with observations of four numbers and two actions."""
    rng = np.random.default_rng(seed)
    numbers = np.arange(rows)
    return Batch(
        obs=torch.tensor(rng.normal(size=(rows, 4)), dtype=torch.float32),
        action=torch.tensor(rng.integers(0, 2, rows)),
        reward=torch.tensor(rng.random(rows), dtype=torch.float32),
        discount=torch.tensor(0.99 * (rng.random(rows) < 0.8), dtype=torch.float32),
        next_obs=torch.tensor(rng.normal(size=(rows, 4)), dtype=torch.float32),
        extras={},
        sample_info=SampleInfo(numbers, np.full(rows, 1 / rows), np.zeros(rows, np.int64)),
    )


def part_of(batch: Batch, part: int, count: int) -> Batch:
    """Every `count`-th row of a batch: the mean over parts of equal size is the mean over the batch."""
    rows = slice(part, None, count)
    info = SampleInfo(*(None if column is None else column[rows] for column in batch.sample_info))
    columns: dict[str, Any] = {
        name: getattr(batch, name)[rows] for name in ("obs", "action", "reward", "discount", "next_obs")
    }
    return batch._replace(**columns, sample_info=info)


def make_learner() -> GradientLearner:
    """RMSProp: Adam makes whole steps of gradients that are nothing but rounding."""
    model = QFunction([16], action_space=2, seed=0)
    return DQNLearner(model, optimizer="rmsprop", initial_learning_rate=0.01, target_update_period=3)


def tensors_of(learner: GradientLearner) -> dict[str, Tensor]:
    """All that a checkpoint keeps, and parameters beside it, copied."""
    groups = learner.parameter_groups().items()
    moved = {f"{group}/{name}": tensor for group, named in groups for name, tensor in named.items()}
    return {name: tensor.detach().clone() for name, tensor in {**learner.state_dict()["tensors"], **moved}.items()}


def learned_alone() -> dict[str, Tensor]:
    """What one learner makes of all batches."""
    learner = make_learner()
    for i in range(UPDATES):
        learner.optimize(i, make_batch(i))
    return tensors_of(learner)


def main(job: str, folder: Path) -> None:
    """Be one rank."""
    torch.set_num_threads(1)
    store, rank, count = next(rendezvous("env://", timeout=timedelta(seconds=60)))
    ranks, learner = Ranks(store, rank, count), make_learner()
    learner.learn_with(ranks)
    try:
        for i in range(UPDATES):
            if job == "die" and i == UPDATES // 2 and rank == count - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            learner.optimize(i, part_of(make_batch(i), rank, count))
    except RankError as error:
        (folder / f"rank-{rank}.error").write_text(str(error))
        return
    safetensors.torch.save_file(tensors_of(learner), folder / f"rank-{rank}.safetensors")
    ranks.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
