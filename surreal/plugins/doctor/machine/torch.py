"""Torch on this machine: its threads, and the GPUs that it can use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from surreal.plugins.doctor.frame.finding import Finding, ok
from surreal.plugins.doctor.machine.faults import NO_CUDA, THREADS

_GPU_FILES = Path("/dev")


def gpu_names() -> list[str]:
    """Names of the GPUs that torch can use."""
    return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]


def cuda(*, devices: Callable[[], list[str]] = gpu_names, gpu_files: Path = _GPU_FILES) -> Iterator[Finding]:
    """See whether torch can use the GPUs that are there.

    Args:
        devices: names of those that torch can use.
        gpu_files: folder in which each GPU has a file, `nvidia0`.
    """
    found, there = devices(), sorted(path.name for path in gpu_files.glob("nvidia[0-9]*"))
    if there and not found:
        yield NO_CUDA.found(f"{len(there)} GPU(s) are here, but torch {torch.__version__} can use none")
    else:
        yield ok(f"torch {torch.__version__}, {', '.join(found) or 'without a GPU'}")


def threads(
    *, cores: int, variables: Mapping[str, str] = os.environ, number: Callable[[], int] = torch.get_num_threads
) -> Iterator[Finding]:
    """See how many threads torch would take in each process of a run.

    Args:
        cores: that this process may use.
        variables: of the environment.
        number: of threads that torch uses in this process.
    """
    asked, count = variables.get("OMP_NUM_THREADS", ""), number()
    if count > cores:
        yield THREADS.found(f"torch takes {count} threads, but there are {cores} cores; $OMP_NUM_THREADS is {asked!r}")
    else:
        yield ok(f"{cores} core(s); $OMP_NUM_THREADS is {asked or 'not set, so a run gives each process one thread'}")
