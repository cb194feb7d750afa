"""Steppers: how the parameters of a learner move down a gradient. The learner does not know which stepper it has.

LocalStepper    steps here
RankStepper     steps down the mean of the gradients of all ranks
SendingStepper  sends the gradients of the model to parameter servers, and steps other groups here
PartStepper     steps one part of the parameters: one of several parameter servers
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from surreal.base.contracts import Stepper
from surreal.base.errors import CheckpointError, DivergedError
from surreal.base.pytorch import Module
from surreal.base.types import Gradients
from surreal.base.values import checked_count
from surreal.learner.stepping.optimizers import MODEL, Optimizer
from surreal.learner.stepping.ranks import Ranks, Reducer
from surreal.learner.stepping.reports import Histograms
from surreal.learner.stepping.update_rules import OptimizerSettings
from surreal.model.filters import RunningMoments

#: Pairs of name and parameter.
NamedTensors = Iterable[tuple[str, Tensor]]
#: How to make gradients finite.
_REMEDY = (
    "lower the learning rate, clip gradients (gradients_norm_clipping), or look at what observations and rewards hold"
)


class ParameterGroups:
    """The parameters that a learner moves: groups of them, each with its optimizer. All steps end in `step`.

    Args:
        max_norm: largest norm of a group's gradient; None clips nothing.
        schedule: gives the learning rate of the next step of a group with the usual one; None keeps it constant.
        histograms: get gradients before they are clipped.
    """

    def __init__(
        self,
        settings: OptimizerSettings,
        *,
        max_norm: float | None,
        lock: threading.RLock,
        schedule: Callable[[], float] | None,
        histograms: Histograms,
        skipped_limit: int,
    ) -> None:
        # Not a dataclass: the key of a compiled graph has all dataclasses of a learner, as settings.
        self.settings, self.max_norm, self.lock = settings, max_norm, lock
        self.schedule, self.histograms = schedule, histograms
        self.optimizers: dict[str, Optimizer] = {}
        self.skipped = SkipCounter(skipped_limit)
        self._rate_factors: dict[str, float] = {}
        self._norms: dict[str, Tensor] = {}  # of the running update
        self._recorded: list[tuple[str, Tensor]] | None = None  # steps of a graph that is recorded

    def add(self, group: str, parameters: NamedTensors, learning_rate: float | None = None) -> Optimizer:
        """Add an optimizer of a group; arguments as in `GradientLearner.optimize_group`."""
        initial = self.settings.learning_rate if learning_rate is None else learning_rate
        optimizer = Optimizer(parameters, replace(self.settings, learning_rate=initial))
        self.optimizers[group] = optimizer
        self._rate_factors[group] = initial / self.settings.learning_rate
        return optimizer

    def step(self, gradients: Gradients) -> None:
        """Clip gradients, anneal the learning rate and change the parameters; skip gradients that are not finite."""
        optimizer = self.optimizers[gradients.group]
        if self._recorded is not None:
            norm = optimizer.apply_in_graph(gradients.tensors, max_norm=self.max_norm)
            self._recorded.append((gradients.group, norm))
            return
        if self.schedule is not None:
            self.anneal(gradients.group)
        if self.histograms.interval is not None:
            self.show(gradients)
        norm = optimizer.apply(gradients.tensors, max_norm=self.max_norm, lock=self.lock, norm=gradients.norm)
        self.note(gradients.group, norm)

    def anneal(self, group: str) -> None:
        """Set the learning rate of a group's next step."""
        if self.schedule is not None:
            self.optimizers[group].learning_rate = self.schedule() * self._rate_factors[group]

    @contextmanager
    def recording(self) -> Iterator[list[tuple[str, Tensor]]]:
        """Make steps as `Optimizer.apply_in_graph` does; yields the group of each, and the norm of its gradient."""
        self._recorded = []
        try:
            yield self._recorded
        finally:
            self._recorded = None

    def show(self, gradients: Gradients) -> None:
        """Add gradients to the histograms, if these are due."""
        if self.histograms.wants_gradients(gradients.group):
            self.histograms.add_gradients(gradients.group, gradients.tensors)

    def note(self, group: str, norm: Tensor) -> None:
        """Record the norm of a group's gradient in a step, done here or elsewhere."""
        self._norms[group] = norm
        self.skipped.note(group, norm)

    def end_update(self, *, is_checked: bool) -> None:
        """Count the update, see `SkipCounter.end_update`."""
        self._norms.clear()
        self.skipped.end_update(is_checked=is_checked)

    def named(self) -> Mapping[str, Mapping[str, Tensor]]:
        """The parameters, as `{group: {name: parameter}}`."""
        return {group: optimizer.named for group, optimizer in self.optimizers.items()}

    def described(self) -> dict[str, Any]:
        """Return the settings of all steps as plain data, apart from learning rates."""
        kinds = {group: optimizer.kind for group, optimizer in self.optimizers.items()}
        return {"optimizers": kinds, "max_norm": self.max_norm}

    def metrics(self, groups: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor | float]:
        """Return learning rate, norm of the gradient before clipping and norm of the parameters of groups."""
        found = dict[str, Any]()
        for group, tensors in groups.items():
            suffix = "" if group == MODEL else f"_{group}"
            found[f"weight_norm{suffix}"] = torch.nn.utils.get_total_norm([each.detach() for each in tensors.values()])
            if group in self.optimizers:
                found[f"learning_rate{suffix}"] = self.optimizers[group].learning_rate
            if group in self._norms:
                found[f"gradient_norm{suffix}"] = self._norms[group]
        return found


class LocalStepper(Stepper):
    """Steps here."""

    def __init__(self, groups: ParameterGroups) -> None:
        self.groups = groups

    def add_group(self, group: str, parameters: NamedTensors, learning_rate: float | None = None) -> Optimizer | None:
        return self.groups.add(group, parameters, learning_rate)

    def step(self, gradients: Sequence[Gradients]) -> None:
        for each in gradients:
            self.groups.step(each)

    def end_learning(self, parts: Iterable[Any]) -> None:
        """Nothing: no other process takes part in these steps."""


class RankStepper(LocalStepper):
    """Steps down the mean of the gradients of all ranks, which begin with the same state and update together."""

    def __init__(self, groups: ParameterGroups, ranks: Ranks, model: Module) -> None:
        super().__init__(groups)
        self._model = model
        self._reducer = Reducer(ranks, groups.optimizers)
        self.start()

    def step(self, gradients: Sequence[Gradients]) -> None:
        for each in gradients:
            self._step(each.group, each.tensors)

    def start(self) -> None:
        for module in self._model.modules():
            if isinstance(module, RunningMoments):
                module.track()

    def share_counts(self) -> None:
        self._reducer.share_counts(self._model)

    def end_learning(self, parts: Iterable[Any]) -> None:
        self._step(None, {})  # take part in the steps of ranks that have more
        with self._model.lock:
            self._reducer.share_counts(self._model)
            self._reducer.follow_first(self._model, parts)

    def metrics(self) -> dict[str, float]:
        return self._reducer.metrics()

    def _step(self, group: str | None, tensors: Mapping[str, Tensor]) -> None:
        for chosen, mean in self._reducer.steps(group, tensors):
            self.groups.step(Gradients(chosen, mean))


class SendingStepper(LocalStepper):
    """Sends the gradients of the model's parameters to their receiver, which changes them; steps other groups."""

    def __init__(self, groups: ParameterGroups, send: Callable[[Sequence[Gradients]], object], model: Module) -> None:
        super().__init__(groups)
        self._send = send
        self._model = model

    def step(self, gradients: Sequence[Gradients]) -> None:
        sent = list[Gradients]()
        for each in gradients:
            if self._is_sent(each.group):
                self.groups.show(each)
                sent.append(each)
            else:
                self.groups.step(each)
        if sent:
            self._send(sent)

    def _is_sent(self, group: str) -> bool:
        shared = {id(parameter) for parameter in self._model.parameters()}
        return all(id(each) in shared for each in self.groups.optimizers[group].named.values())


class PartStepper(LocalStepper):
    """Steps only the parameters with these names, `group/name`; other parameter servers step the rest."""

    def __init__(self, groups: ParameterGroups, names: Collection[str]) -> None:
        super().__init__(groups)
        self._names = names
        groups.optimizers.clear()

    def add_group(self, group: str, parameters: NamedTensors, learning_rate: float | None = None) -> Optimizer | None:
        own = [(name, tensor) for name, tensor in parameters if f"{group}/{name}" in self._names]
        return super().add_group(group, own, learning_rate) if own else None

    def step(self, gradients: Sequence[Gradients]) -> None:
        for each in gradients:
            if each.group not in self.groups.optimizers and each.norm is not None:
                self.groups.note(each.group, each.norm)  # another server has all of this group
            else:
                self.groups.step(each)


class SkipCounter:
    """Counts on the gradients' own device, and waits for it only when it is asked: once in a while on a GPU.

    An update is skipped if none of its steps of some group of parameters was finite. So many in a row as the limit, >=
    1, show that the learner has diverged.
    """

    def __init__(self, limit: int) -> None:
        self._before = 0  # skipped by earlier processes of the run
        self._limit = limit
        self._updates = 0
        self._total: Tensor | int = 0
        self._finite: dict[str, Tensor | bool] = {}  # whether a step of the running update was, by group
        self._streaks: dict[str, Tensor | int] = {}

    @property
    def total(self) -> int:
        return self._before + int(self._total)

    @staticmethod
    def total_of(state: Mapping[str, Any]) -> int:
        """Return the total of a checkpoint; raise `CheckpointError` if it is not a count."""
        try:
            return checked_count(state.get("skipped_updates", 0))
        except ValueError as error:
            raise CheckpointError(f"the checkpoint's skipped_updates: {error}") from error

    def restore(self, total: int) -> None:
        """Continue from the total of a checkpoint; the count never goes back."""
        self._before = max(self._before, total - int(self._total))

    def note(self, group: str, norm: Tensor) -> None:
        """Record a step of a group by the norm of its gradients, a scalar: if it is not finite, it was skipped."""
        is_finite = norm.isfinite() if norm.is_cuda else math.isfinite(norm)
        self._finite[group] = self._finite.get(group, False) | is_finite

    def end_update(self, *, is_checked: bool) -> None:
        """Count the update's noted steps, which waits for a GPU; raises `DivergedError` at the limit."""
        is_skipped: Tensor | bool = False
        for group, is_finite in self._finite.items():
            self._streaks[group] = (self._streaks.get(group, 0) + 1) * (is_finite ^ True)
            is_skipped = is_skipped | (is_finite ^ True)
        self._updates += bool(self._finite)
        self._total = self._total + is_skipped
        self._finite.clear()
        if is_checked and (streak := max((int(each) for each in self._streaks.values()), default=0)) >= self._limit:
            self._streaks.clear()  # a learner that went back begins to count again
            raise DivergedError(f"the gradients of {streak} updates in a row are not finite: {_REMEDY}")

    def check_all(self) -> None:
        """Raise `DivergedError` if this process has done updates, and all of them were skipped."""
        if self._updates and int(self._total) == self._updates:
            raise DivergedError(f"none of {self._updates} updates had finite gradients: {_REMEDY}")
