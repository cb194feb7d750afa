"""`FilterCounts`: what the filters of a model have counted, on its way to the parameter server that has the whole.

An agent that computes gradients counts the observations and returns of its batches into its own copy of the filters,
which the server's replaces with each version. What it counted since its last push travels beside the next gradient.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from surreal.model.filters import Moments, RunningMoments

#: As they travel: the group of gradients that are none.
COUNTS = "counts"


class FilterCounts:
    """The running moments of a model, at either end.

    Args:
        model: whose filters these are; it has its layers.
    """

    def __init__(self, model: nn.Module) -> None:
        modules = model.named_modules()
        self._moments = {name: module for name, module in modules if isinstance(module, RunningMoments)}

    def groups(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Tensors as those that travel, by group and name; no group where the model has no filter."""
        found = {name: moments.fresh() for name, moments in self._moments.items()}
        return {COUNTS: _named(found)} if found else {}

    def track(self) -> None:
        """From now on, keep apart what is counted."""
        for moments in self._moments.values():
            moments.track()

    def pending(self) -> Mapping[str, Mapping[str, Tensor]]:
        """What was counted since `track` or the last `forget`, as a group that travels; no group if that is nothing."""
        found = {name: fresh for name, moments in self._moments.items() if (fresh := moments.fresh()).total > 0}
        return {COUNTS: _named(found)} if found else {}

    def forget(self) -> None:
        """What was pending has arrived."""
        self.track()

    def add(self, tensors: Mapping[str, Tensor]) -> None:
        """Count in what another process was `pending`; under the model's lock."""
        for name, moments in self._moments.items():
            # What comes from elsewhere may be anything that is finite; less than one vector would spoil the rest.
            if f"{name}.total" in tensors and tensors[f"{name}.total"] >= 1.0:
                moments.merge(Moments(*(tensors[f"{name}.{part}"] for part in Moments._fields)))


def _named(found: Mapping[str, Moments]) -> dict[str, Tensor]:
    return {
        f"{name}.{part}": tensor
        for name, moments in found.items()
        for part, tensor in zip(Moments._fields, moments, strict=True)
    }
