"""`Ranks`: the processes that learn together, and their communication, only through torch.distributed.

    ranks = Ranks(store, rank, count)
    ranks.add_up(tensor)        # on a GPU by nccl, else by gloo
    ranks.sum([1.0, 0.0])       # of plain numbers; waits for no GPU
    ranks.close()

Every call is made by all ranks, in the same order; it returns when all of them have made it.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.distributed import Store  # type: ignore[attr-defined]

from surreal.base.errors import RankError
from surreal.base.metrics import MeanDuration
from surreal.base.system.logs import WaitNotice
from surreal.learner.stepping.optimizers import Optimizer
from surreal.model.filters import Moments, RunningMoments

logger = logging.getLogger(__name__)

_TROUBLE = "trouble"
_PLACE_IN_SOURCE = re.compile(r"\[\S+:\d+\] ")
_PATIENCE = timedelta(seconds=1)


class Ranks:
    """A group of processes, of which this is number `rank`; raises `RankError` after `timeout_s` without one."""

    def __init__(self, store: Store, rank: int, count: int, *, timeout_s: float = 600.0) -> None:
        self.rank = rank
        self.count = count
        self.is_broken = False  #: whether a call has failed, so that no further one can do
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
        return total.tolist()

    def hand_out(self, data: bytes) -> bytes:
        """Return the bytes of rank 0 on all ranks; those of the others are ignored."""
        (length,) = self.sum([float(len(data)) if self.is_first else 0.0])
        own = data if self.is_first else bytes(int(length))
        buffer = torch.frombuffer(bytearray(own), dtype=torch.uint8)
        self.copy_first(buffer)
        return buffer.numpy().tobytes()

    def tell_trouble(self, reason: str) -> None:
        """Explain why this rank ends without the others, if other ranks can still receive it."""
        with suppress(RuntimeError):
            self._store.set(_TROUBLE, reason)

    def heard_trouble(self) -> str:
        """Return why a rank ended without the others, "" if none said so."""
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


class Reducer:
    """Finds the mean of the gradients of all ranks."""

    def __init__(self, ranks: Ranks, groups: Mapping[str, Optimizer]) -> None:
        self._ranks = ranks
        self._groups = groups
        self._is_uneven = False
        self._duration = MeanDuration("learner/reduce_ms")

    def steps(self, group: str | None, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, dict[str, Tensor]]]:
        """Take part in steps of all ranks until one has had these gradients, of the loss on this rank's batch; without
        a group of parameters, this rank's update has no further ones, and it takes part until none has.

        Yields the group of a step to be done now, and the mean of the gradients of those ranks that step it. A
        parameter without a gradient has one of zero where others have one, and is left out where none has.
        """
        while True:
            started_s = time.perf_counter()
            names, votes, present = self._vote(group, tensors)
            if not any(votes):
                return
            chosen = names[max(range(len(names)), key=votes.__getitem__)]
            mean = self._mean(chosen, tensors if chosen == group else {}, present, max(votes))
            self._is_uneven |= max(votes) < self._ranks.count
            self._duration.add(time.perf_counter() - started_s)
            yield chosen, mean
            if chosen == group:
                return

    def share_counts(self, model: nn.Module) -> None:
        """Add the counts of all other ranks' filters since the last call to the model's filters."""
        filters = [module for module in model.modules() if isinstance(module, RunningMoments)]
        if not filters:
            return
        mine = [part for moments in filters for part in moments.fresh()]
        sizes = [part.numel() for part in mine]
        table = mine[0].new_zeros(self._ranks.count, sum(sizes))
        table[self._ranks.rank] = torch.cat([part.reshape(-1) for part in mine])
        self._ranks.add_up(table)
        for rank in set(range(self._ranks.count)) - {self._ranks.rank}:
            parts = [part.view_as(own) for part, own in zip(table[rank].split_with_sizes(sizes), mine, strict=True)]
            for place, moments in enumerate(filters):
                found = Moments(*parts[3 * place : 3 * place + 3])
                if found.total > 0:
                    moments.merge(found)
        for moments in filters:
            moments.track()

    def follow_first(self, model: nn.Module, parts: Iterable[Any]) -> None:
        """At the end of an update, copy from rank 0 whatever gradients do not change: of the model, and of the contents
        of the learner's checkpoints in addition to it, in the same order everywhere.

        That is always what batches are counted in: the model's buffers, and parts that are not networks. Filters differ
        by rounding only. After an update whose steps were not the same for all ranks, it is also networks such as
        targets.
        """
        tensors = list(model.buffers())
        for part in parts:
            if isinstance(part, nn.Module):
                tensors += [*part.parameters(), *part.buffers()] if self._is_uneven else []
            elif not isinstance(part, Optimizer):
                tensors += part.tensors().values()
        self._is_uneven = False
        self._copy_first([tensor.detach() for tensor in tensors if tensor.numel()])

    def metrics(self) -> dict[str, float]:
        """Time that a step waits for other ranks' gradients."""
        return self._duration.metrics()

    def _vote(self, group: str | None, tensors: Mapping[str, Tensor]) -> tuple[list[str], list[float], set[str]]:
        """Announce this rank's groups; return all groups, the number of ranks in each, and parameters with gradients.

        A parameter's name has its group's in front: two groups may have parameters of one name.
        """
        names = list(self._groups)
        parameters = [f"{name}/{each}" for name in names for each in self._groups[name].named]
        own = {f"{group}/{name}" for name in tensors}
        given = [float(name == group) for name in names] + [float(each in own) for each in parameters]
        found = self._ranks.sum(given)
        counts = zip(parameters, found[len(names) :], strict=True)
        return names, found[: len(names)], {each for each, count in counts if count}

    def _mean(self, group: str, own: Mapping[str, Tensor], present: set[str], voters: float) -> dict[str, Tensor]:
        moved = {name: each for name, each in self._groups[group].named.items() if f"{group}/{name}" in present}
        if not moved:
            return {}
        found = [own.get(name, torch.zeros_like(each)) for name, each in moved.items()]
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in found])
        self._ranks.add_up(flat)
        parts = flat.div_(voters).split_with_sizes([each.numel() for each in moved.values()])
        return {name: part.view_as(moved[name]) for name, part in zip(moved, parts, strict=True)}

    def _copy_first(self, tensors: Iterable[Tensor]) -> None:
        """Copy tensors from rank 0, those of one kind in one go."""
        kinds: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
        for tensor in tensors:
            kinds.setdefault((tensor.device, tensor.dtype), []).append(tensor)
        for members in kinds.values():
            flat = torch.cat([tensor.reshape(-1) for tensor in members])
            self._ranks.copy_first(flat.view(torch.uint8))  # as bytes: gloo does not know every kind of number
            parts = flat.split_with_sizes([tensor.numel() for tensor in members])
            for tensor, part in zip(members, parts, strict=True):
                tensor.copy_(part.view_as(tensor))
