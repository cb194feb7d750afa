"""`Reducer`: several learners, each with its own batches, do the same steps at the same time.

Each step begins with a vote, a few numbers on the CPU: which group of parameters does a rank step next, and which of
them have a gradient. Then the gradients of the group that is chosen are added up in one flat tensor. So ranks need not
do the same number of steps in an update: one that has no more, for its batch has fewer minibatches or its policy moved
far enough, takes part in those of the others with nothing of its own, and parameters stay the same everywhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from surreal.base.metrics import MeanDuration
from surreal.learner.stepping.optimizers import Optimizer
from surreal.learner.stepping.ranks import Ranks
from surreal.model.filters import Moments, RunningMoments


class Reducer:
    """Finds the mean of the gradients of all ranks.

    Args:
        ranks: which learn together, with the same groups of parameters.
        groups: optimizers by group; filled before the first step.
    """

    def __init__(self, ranks: Ranks, groups: Mapping[str, Optimizer]) -> None:
        self._ranks = ranks
        self._groups = groups
        self._is_uneven = False
        self._duration = MeanDuration("learner/reduce_ms")

    def steps(self, group: str | None, tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, dict[str, Tensor]]]:
        """Take part in steps of all ranks until one has had these gradients.

        Args:
            group: of parameters; None: this rank has no more gradients in this update, and takes part until none has.
            tensors: gradients by the parameter's name, of the loss on this rank's batch.

        Yields:
            The group of a step to be done now, and the mean of the gradients of those ranks that step it. A parameter
            without a gradient has one of zero where others have one, and is left out where none has.
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
        """Count into the model's filters what those of all other ranks have counted since the last call."""
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
        """Take over from rank 0 what no gradient moves, at the end of an update.

        That is always what batches are counted in: the model's buffers, and parts that are no networks. Filters differ
        by rounding only. After an update whose steps were not the same for all ranks, it is also networks such as
        targets.

        Args:
            model: the learner's.
            parts: what its checkpoints keep beside the model, optimizers included, in the same order everywhere.
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
        """How long a step waits for other ranks' gradients."""
        return self._duration.metrics()

    def _vote(self, group: str | None, tensors: Mapping[str, Tensor]) -> tuple[list[str], list[float], set[str]]:
        """Say what this rank steps; returns all groups, how many ranks step each, and the parameters with gradients.

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
