"""`Ranks`: the processes that learn together, and what they tell each other. Nothing but torch.distributed.

    ranks = Ranks(store, rank, count)
    ranks.add_up(tensor)        # on a GPU by nccl, else by gloo
    ranks.sum([1.0, 0.0])       # of plain numbers; waits for no GPU
    ranks.close()

Every call is made by all ranks, in the same order; it returns when all of them have made it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed
from torch import Tensor
from torch.distributed import Store  # type: ignore[attr-defined]

from surreal.base.errors import RankError
from surreal.base.liveness.wait_notice import WaitNotice

logger = logging.getLogger(__name__)

_TROUBLE = "trouble"
_PLACE_IN_SOURCE = re.compile(r"\[\S+:\d+\] ")
_PATIENCE = timedelta(seconds=1)


class Ranks:
    """A group of processes, of which this one is number `rank`. One at a time in a process.

    Args:
        store: which all of them reach.
        rank: of this process, 0 .. count - 1.
        count: how many there are, >= 2.
        timeout_s: how long a call may wait for the others, s; a rank whose process ends is noticed at once.

    Attributes:
        is_broken: whether a call has failed, so that no further one can do.

    Raises:
        RankError: not all of them came in time.
    """

    def __init__(self, store: Store, rank: int, count: int, *, timeout_s: float = 600.0) -> None:
        self.rank = rank
        self.count = count
        self.is_broken = False
        self._store = store
        self._notice = WaitNotice(logger, level=logging.INFO)
        has_nccl = torch.cuda.is_available() and torch.distributed.is_nccl_available()
        backend = "cpu:gloo,cuda:nccl" if has_nccl else "gloo"
        timeout = timedelta(seconds=timeout_s)
        self._call(
            lambda: torch.distributed.init_process_group(
                backend, store=store, rank=rank, world_size=count, timeout=timeout
            )
        )

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which has the say."""
        return self.rank == 0

    def add_up(self, tensor: Tensor) -> None:
        """Replace a tensor of the same shape on all ranks by their sum."""
        self._call(lambda: torch.distributed.all_reduce(tensor))

    def copy_first(self, tensor: Tensor) -> None:
        """Replace a tensor of the same shape on all ranks by that of rank 0."""
        self._call(lambda: torch.distributed.broadcast(tensor, src=0))

    def sum(self, values: Sequence[float]) -> list[float]:
        """Add up as many numbers as all ranks give, exactly where they are whole and below 2^53.

        This is where a rank waits for one that is slow or busy, and says so.
        """
        total = torch.tensor(values, dtype=torch.float64)
        self._call(lambda: self._wait_for(torch.distributed.all_reduce(total, async_op=True)))
        found: list[float] = total.tolist()
        return found

    def hand_out(self, data: bytes) -> bytes:
        """Give the bytes of rank 0 to all; what the others give is not looked at."""
        (length,) = self.sum([float(len(data)) if self.is_first else 0.0])
        own = data if self.is_first else bytes(int(length))
        buffer = torch.frombuffer(bytearray(own), dtype=torch.uint8)
        self.copy_first(buffer)
        return buffer.numpy().tobytes()

    def tell_trouble(self, reason: str) -> None:
        """Say why this rank ends without the others, as far as anybody can still hear it."""
        with suppress(RuntimeError):
            self._store.set(_TROUBLE, reason)

    def heard_trouble(self) -> str:
        """Give why a rank ended without the others, "" if none said so."""
        with suppress(RuntimeError):
            if self._store.check([_TROUBLE]):
                return bytes(self._store.get(_TROUBLE)).decode(errors="replace")
        return ""

    def close(self) -> None:
        """Leave the group; the others may have left it."""
        with suppress(RuntimeError):
            torch.distributed.destroy_process_group()

    def _wait_for(self, work: Any) -> None:
        while not _is_done(work):
            self._notice.tell("waiting for the learner's other ranks")
        self._notice.end()

    def _call(self, operation: Callable[[], object]) -> None:
        try:
            operation()
        except RuntimeError as error:  # what all of torch.distributed's errors are
            self.is_broken = True
            reason = _PLACE_IN_SOURCE.sub("", str(error).strip()).partition("\n")[0].partition(". ")[0]
            raise RankError(f"one of the {self.count} ranks of the learner is gone: {reason}") from error


def _is_done(work: Any) -> bool:
    """Wait a moment for an operation; raises if it failed."""
    try:
        work.wait(_PATIENCE)
    except RuntimeError:
        if work.is_completed():
            raise
        return False
    return True
