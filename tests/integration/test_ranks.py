"""Ranks that are processes, through torch.distributed's gloo; what they do in threads is in tests/unit."""

from __future__ import annotations

import os
from pathlib import Path

import safetensors.torch
import torch

from surreal.run.process.arguments import RankPlace
from tests.ranked import learned_alone
from tests.warm_python import WarmPython, environment_of_a_user

_TIMEOUT_S = 120.0


def run(warm_python: WarmPython, folder: Path, port: int, job: str, count: int) -> list[int]:
    """Run a job of `tests.ranked` on so many ranks; gives their exit codes."""
    processes = []
    with open(os.devnull, "r+b") as nothing, (folder / "output").open("wb") as output:
        for rank in range(count):
            environment = environment_of_a_user() | RankPlace(rank, count, local_rank=rank).variables(port)
            arguments = ["-m", "tests.ranked", job, str(folder)]
            streams = (nothing.fileno(), output.fileno(), output.fileno())
            processes.append(warm_python.start(arguments, folder=folder, environment=environment, streams=streams))
    return [process.wait(_TIMEOUT_S) for process in processes]


def test_four_processes_with_quarters_of_a_batch_learn_what_one_learner_does_of_it_all(
    warm_python: WarmPython, tmp_path: Path, free_port: int
) -> None:
    assert run(warm_python, tmp_path, free_port, "learn", 4) == [0, 0, 0, 0], (tmp_path / "output").read_text()
    ranks = [safetensors.torch.load_file(tmp_path / f"rank-{rank}.safetensors") for rank in range(4)]
    for name, tensor in learned_alone().items():
        assert all(torch.equal(found[name], ranks[0][name]) for found in ranks), name
        # Means of eight rows each, and their mean, round otherwise than one mean of 32: 24 bits, over eight updates.
        torch.testing.assert_close(ranks[0][name], tensor, rtol=1e-4, atol=1e-6)


def test_a_rank_that_is_killed_is_noticed_at_once(warm_python: WarmPython, tmp_path: Path, free_port: int) -> None:
    assert run(warm_python, tmp_path, free_port, "die", 2) == [0, -9], (tmp_path / "output").read_text()
    error = (tmp_path / "rank-0.error").read_text()
    assert error.startswith("one of the 2 ranks of the learner is gone: ")
