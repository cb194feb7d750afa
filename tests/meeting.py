"""Ranks that are threads of a test: what `surreal.learner.stepping.ranks.Ranks` is for processes.

together(2, lambda rank: learned(learner(), rank))
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch
from torch import Tensor

from surreal.base.errors import RankError

T = TypeVar("T")

_TIMEOUT_S = 60.0


class Meeting:
    """Where `count` threads meet, each of them with something to give."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.barrier = threading.Barrier(count)
        self.given: list[Any] = [None] * count


class ThreadRank:
    """One of them, with the interface of `Ranks`."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self._meeting = meeting
        self.rank = rank
        self.count = meeting.count
        self.is_first = rank == 0
        self.is_broken = False

    def add_up(self, tensor: Tensor) -> None:
        tensor.copy_(torch.stack(self._exchange(tensor.clone())).sum(0))

    def copy_first(self, tensor: Tensor) -> None:
        tensor.copy_(self._exchange(tensor.clone())[0])

    def sum(self, values: Sequence[float]) -> list[float]:
        return [sum(column) for column in zip(*self._exchange(list(values)), strict=True)]

    def hand_out(self, data: bytes) -> bytes:
        found: bytes = self._exchange(data)[0]
        return found

    def _exchange(self, mine: Any) -> list[Any]:
        try:
            self._meeting.given[self.rank] = mine
            self._meeting.barrier.wait(_TIMEOUT_S)
            found = list(self._meeting.given)
            self._meeting.barrier.wait(_TIMEOUT_S)
        except threading.BrokenBarrierError as error:
            self.is_broken = True
            raise RankError("a rank is gone") from error
        return found


def together(count: int, work: Callable[[Any], T]) -> list[T]:
    """Do something on each of `count` ranks at the same time; gives what each returns, or raises what the first raises.

    A rank that fails is gone for the others.
    """
    meeting = Meeting(count)

    def be(rank: int) -> T:
        try:
            return work(ThreadRank(meeting, rank))
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(be, rank) for rank in range(count)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise next((error for error in errors if not isinstance(error, RankError)), errors[0])
    return [future.result() for future in futures]
