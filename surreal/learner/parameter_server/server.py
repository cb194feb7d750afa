"""`ParameterServer`: steps down gradients that others computed, with a learner's own optimizers.

    server = ParameterServer(learner, combine="dc")
    while True:
        gradient = queue.take(timeout_s=0.5)
        if gradient is not None and server.step(gradient):
            version = broadcaster.broadcast(learner.model)
            server.published(version)

Clipping, schedules, the check for finite numbers and the state that checkpoints keep are the learner's.

Rules turn the gradients of many agents into steps: pure functions, on tensors by `group/name`.

    fifo   each gradient is a step
    avg    the mean of N gradients is one step, as of one batch that joins their batches
    dc     each gradient is a step, corrected for the parameters having moved since it was computed
"""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from surreal.base.errors import ContractError
from surreal.base.metrics import MeanDuration
from surreal.base.ranges import NonNegative, PositiveInt, checked
from surreal.base.types import Gradients
from surreal.learner.gradients import GradientLearner
from surreal.model.filters import COUNTS, FilterCounts


class PushedGradient(Protocol):
    """The part of a gradient that a server uses."""

    @property
    def tensors(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Tensors by group and name; the counts of filters (see `FilterCounts`) are a separate group."""

    @property
    def version(self) -> int:
        """Version of the parameters it was computed with."""

    @property
    def global_step(self) -> int:
        """Env steps of the whole run when it was pushed."""


@checked
@dataclass(eq=False, repr=False)
class ParameterServer:
    """Steps down gradients; used by one thread."""

    learner: GradientLearner
    _: KW_ONLY
    #: fifo: each gradient is a step. avg: the mean of `num_gradients` is. dc: as fifo, with each gradient corrected for
    #: the parameters having moved on since it was computed
    combine: Literal["fifo", "avg", "dc"] = "fifo"
    num_gradients: PositiveInt = 4  #: gradients in a mean; raising it gives fewer and steadier steps
    dc_lambda: NonNegative = 0.05  #: strength of the correction; raising it corrects more, 0 not at all
    dc_history: PositiveInt = 20  #: updates for which published parameters are remembered; raising it takes memory
    #: `group/name` of the parameters that are this server's, of several; None: all of them
    names: Collection[str] | None = None
    #: exchanges bytes with the other servers (`ServerGroup.gather`); needed with `names`
    gather: Callable[[bytes], list[bytes]] | None = None

    def __post_init__(self) -> None:
        if (self.names is None) != (self.gather is None):
            raise ValueError("a server of several needs both `names` and `gather`")
        if not self.learner.is_ready:
            raise ValueError("the learner has no shape yet, so there is nothing to step")
        self._moved = {tensor.data_ptr() for tensor in _flatten(self.learner.parameter_groups()).values()}
        self._counts = FilterCounts(self.learner.model)
        self._order = [
            f"{group}/{name}" for group, tensors in self.learner.parameter_groups().items() for name in tensors
        ]
        if self.names is not None:
            self.learner.own(self.names)
        self._is_first = self.names is None or self._order[0] in self.names
        self._mean = Mean(self.num_gradients) if self.combine == "avg" else None
        self._history = History(self.dc_history) if self.combine == "dc" else None
        self._lags = 0
        self._steps = 0
        self._duration = MeanDuration("gradients/apply_ms")

    def step(self, gradient: PushedGradient) -> bool:
        """Take a gradient; returns whether it led to an update. Raises `DivergedError`, or `ContractError`."""
        started_s = time.perf_counter()
        self.learner.on_global_step(gradient.global_step)
        mine = _flatten(self.learner.parameter_groups())
        tensors = _flatten({group: found for group, found in gradient.tensors.items() if group != COUNTS})
        if foreign := sorted(tensors.keys() - mine.keys()):
            raise ContractError(f"a gradient has {foreign[0]}, which is not a parameter of this server")
        if COUNTS in gradient.tensors:
            with self.learner.model.lock:
                self._counts.add(gradient.tensors[COUNTS])
        combined = self._combine(tensors, mine, gradient.version)
        if combined is None:
            return False
        self._step(combined)
        self._lags += self.learner.version - gradient.version
        self._steps += 1
        self._duration.add(time.perf_counter() - started_s)
        return True

    def published(self, version: int) -> None:
        if self._history is not None:
            self._history.add(version, self.learner.updates, _flatten(self.learner.parameter_groups()))

    def published_names(self) -> frozenset[str]:
        """Names in the model's `tensors()` that this server publishes: all, or those of its part.

        What no optimizer moves is published by the server that has the first parameter.
        """
        named = self.learner.model.tensors()
        if self.gather is None:
            return frozenset(named)
        mine = {tensor.data_ptr() for tensor in _flatten(self.learner.parameter_groups()).values()}
        at = {name: tensor.data_ptr() for name, tensor in named.items()}
        return frozenset(name for name in at if at[name] in mine or (self._is_first and at[name] not in self._moved))

    def reset(self) -> None:
        """Forget gradients that wait for others, and former parameters: after another state was restored."""
        for part in (self._mean, self._history):
            if part is not None:
                part.clear()

    def metrics(self) -> dict[str, float]:
        """Return the mean lag of the applied gradients, in versions, and the time that applying them took."""
        values = {"gradients/lag_versions": self._lags / self._steps} if self._steps else {}
        self._lags = self._steps = 0
        return values | self._duration.metrics()

    def _combine(
        self, tensors: dict[str, Tensor], parameters: Mapping[str, Tensor], version: int
    ) -> dict[str, Tensor] | None:
        tensors = {name: tensor.to(parameters[name].device) for name, tensor in tensors.items()}
        if self._mean is not None:
            return self._mean.add(tensors)
        if self._history is None:
            return tensors
        self._history.forget(self.learner.updates)
        then = self._history.at(version)
        if then is None:
            return tensors
        return {
            name: compensate(tensor, parameters[name].detach(), then[name], self.dc_lambda)
            for name, tensor in tensors.items()
        }

    def _step(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the learner's steps, in the order of its groups, with the norm of the whole gradient of each."""
        norms = self._norms(tensors)
        for group, names in _group(norms).items():
            found = {name: tensors[f"{group}/{name}"] for name in names if f"{group}/{name}" in tensors}
            norm = torch.tensor(math.hypot(*(norms[f"{group}/{name}"] for name in names)))
            self.learner.stepper.step([Gradients(group, found, norm)])
        self.learner.finish_update({})

    def _norms(self, tensors: Mapping[str, Tensor]) -> dict[str, float]:
        """The norm of each tensor of the gradient, of all servers, in one order.

        The sum over all of them is taken from these, whether there is one server or several: so the parameters of
        several are those of one, bit for bit.
        """
        norms = {name: float(torch.linalg.vector_norm(tensor)) for name, tensor in tensors.items()}
        if self.gather is not None:
            for found in self.gather(json.dumps(norms).encode()):
                norms.update(json.loads(found))
        return {name: norms[name] for name in self._order if name in norms}


def _flatten(groups: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {f"{group}/{name}": tensor for group, tensors in groups.items() for name, tensor in tensors.items()}


def _group(names: Iterable[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for each in names:
        group, _, name = each.partition("/")
        groups.setdefault(group, []).append(name)
    return groups


class Mean:
    """Gathers gradients until there are enough for a mean."""

    @checked
    def __init__(self, number: PositiveInt) -> None:
        self._number = number
        self._count = 0
        self._sums: dict[str, Tensor] = {}

    def add(self, gradient: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
        """Take a gradient; returns the mean once it is complete, and starts again. Missing tensors count as zero."""
        for name, tensor in gradient.items():
            if name in self._sums:
                self._sums[name] += tensor
            else:
                self._sums[name] = tensor.clone()
        self._count += 1
        if self._count < self._number:
            return None
        mean = {name: total.div_(self._number) for name, total in self._sums.items()}
        self.clear()
        return mean

    def clear(self) -> None:
        """Drop the incomplete mean."""
        self._count = 0
        self._sums = {}


def compensate(gradient: Tensor, now: Tensor, then: Tensor, dc_lambda: float) -> Tensor:
    """Correct a gradient computed at `then` to an approximate one at `now`: `g + lambda g g (now - then)`.

    Zheng et al. 2017 eq. 10, arXiv:1609.08326: the square of the gradient stands for the diagonal of the Hessian. All
    have one shape, and `dc_lambda` >= 0; 0 leaves the gradient unchanged.
    """
    return torch.addcmul(gradient, gradient * gradient, now - then, value=dc_lambda)


class _Former(NamedTuple):
    version: int
    update: int
    parameters: dict[str, Tensor]


class History:
    """Parameters as they were published, for as many updates."""

    @checked
    def __init__(self, updates: PositiveInt) -> None:
        self._updates = updates
        self._former: deque[_Former] = deque()

    def add(self, version: int, update: int, parameters: Mapping[str, Tensor]) -> None:
        """Remember copies of parameters, published under `version` after `update` updates."""
        copies = {name: tensor.detach().clone() for name, tensor in parameters.items()}
        self._former.append(_Former(version, update, copies))
        self.forget(update)

    def forget(self, update: int) -> None:
        """Drop parameters that are too old after `update` updates, except the newest."""
        while len(self._former) > 1 and self._former[0].update < update - self._updates:
            self._former.popleft()

    def at(self, version: int) -> Mapping[str, Tensor] | None:
        """Parameters of a version, or of the oldest that is remembered if that is newer; None without any."""
        found = None
        for former in self._former:
            if found is None or former.version <= version:
                found = former
        return found.parameters if found else None

    def clear(self) -> None:
        self._former.clear()
