"""Optimizers by name, over named parameters: gradients, steps, and the state that checkpoints keep."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from surreal.learner.stepping.update_rules import BETA2, OptimizerSettings
from surreal.model.mlp import kept_length, restore_length

#: Keeps a division by a norm finite.
_TINY = 1e-6
#: Name of the group of parameters that is all of the model's, or all but a group with its own name.
MODEL = "model"


class Optimizer:
    """An optimizer over named parameters: torch's own steps, on a state that is kept here.

    torch's classes look at every parameter again in each step. For a small network that costs twice as much as the
    step.

    Args:
        parameters: pairs of name and parameter, all on one device; those that need no gradient are passed over.
    """

    def __init__(self, parameters: Iterable[tuple[str, Tensor]], settings: OptimizerSettings) -> None:
        self._named = {name: tensor for name, tensor in parameters if tensor.requires_grad}
        self._parameters = list(self._named.values())
        self._kept = {name: kept for name, tensor in self._named.items() if (kept := kept_length(tensor)) is not None}
        if all(tensor.ndim == 0 for tensor in self._parameters):
            settings = replace(settings, weight_decay=0.0)
        self._settings, self._kind = settings, settings.kind
        self.learning_rate = settings.learning_rate
        self._state: dict[str, _State] = {}
        # The fused kernel counts on the device, the other one where it costs nothing.
        device = self._parameters[0].device if self._parameters and settings.kind.is_fused else None
        with torch.inference_mode(False):
            self._steps = torch.zeros(len(self._named), device=device)  # of each parameter
        self._step_of = dict(zip(self._named, self._steps.unbind(), strict=True))
        #: The learning rate where a graph reads it, a scalar.
        self._rate = torch.zeros((), device=self._parameters[0].device if self._parameters else None)
        self._shown_rate = 0.0

    @property
    def named(self) -> Mapping[str, Tensor]:
        """Its parameters, by name."""
        return self._named

    @property
    def kind(self) -> list[Any]:
        """Name and settings, without the learning rate, and the parameters whose length is kept."""
        return [*astuple(replace(self._settings, learning_rate=0.0)), self._kept]

    def show_rate(self) -> None:
        """Copy the learning rate of the next step to where graphs read it."""
        if self.learning_rate != self._shown_rate:
            self._shown_rate = self.learning_rate
            self._rate.fill_(self.learning_rate)

    def live_tensors(self) -> dict[str, Tensor]:
        """Return everything that `apply_in_graph` reads and changes, by name, the parameters too; none is replaced."""
        found = {"rate": self._rate, "steps": self._steps}
        for name, parameter in self._named.items():
            quantities = zip(self._kind.names, self._state_of(name).quantities, strict=True)
            found |= {f"{name}/parameter": parameter, **{f"{name}/{key}": tensor for key, tensor in quantities}}
        return found

    def gradients(self, loss: Tensor, *, keep_graph: bool = False) -> dict[str, Tensor]:
        """Differentiate a scalar loss; parameters that it does not depend on are left out."""
        found = torch.autograd.grad(loss, self._parameters, allow_unused=True, retain_graph=keep_graph)
        return {name: tensor for name, tensor in zip(self._named, found, strict=True) if tensor is not None}

    def apply(
        self,
        gradients: Mapping[str, Tensor],
        *,
        max_norm: float | None,
        lock: threading.RLock,
        norm: Tensor | None = None,
    ) -> Tensor:
        """Take one step down these gradients, by the parameter's name, which are scaled in place; none if one of them
        is not finite. A parameter without one is unchanged. The lock is held while parameters change.

        Gradients whose global norm is larger than `max_norm` are scaled down to it; give the norm if these are a part
        of them, or it is known. Return the norm before clipping, a scalar: if it is not finite, nothing was changed.
        """
        for name, parameter in self._named.items():
            parameter.grad = gradients.get(name)  # where a debugger looks for it
        names, tensors = list(gradients), list(gradients.values())
        if norm is None:
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))
        found_inf = None
        if norm.is_cuda and self._kind.is_fused:
            # No wait for the device: the kernel itself changes nothing where this is 1.
            found_inf = (~norm.isfinite()).to(torch.float32)
            if max_norm is not None:
                torch._foreach_mul_(tensors, (max_norm / (norm + _TINY)).clamp(max=1.0))
        else:
            length = float(norm)
            if not math.isfinite(length):
                return norm
            if max_norm is not None and length > max_norm:
                torch._foreach_mul_(tensors, max_norm / (length + _TINY))
        states = [self._state_of(name) for name in names]
        with lock, torch.no_grad():
            self._step([self._named[name] for name in names], tensors, states, found_inf)
            for name in self._kept.keys() & gradients.keys():
                restore_length(self._named[name], *self._kept[name])
        return norm

    def apply_in_graph(self, gradients: Mapping[str, Tensor], *, max_norm: float | None) -> Tensor:
        """Step as `apply` by pure operations, which read no number: for a graph. Returns the norm before clipping."""
        norms = torch.stack([torch.linalg.vector_norm(each) for each in gradients.values()])
        norm: Tensor = torch.linalg.vector_norm(norms)
        is_finite = norm.isfinite()
        scale = 1.0 if max_norm is None else (max_norm / (norm + _TINY)).clamp(max=1.0)
        has_gradient = torch.tensor([name in gradients for name in self._named], device=self._steps.device)
        with torch.no_grad():
            self._steps.add_(has_gradient & is_finite.to(self._steps.device))
            for (name, parameter), given in zip(self._named.items(), self._settings.given(self._steps), strict=True):
                if name not in gradients:
                    continue
                quantities = self._state_of(name).quantities
                change, new = self._kind.change(gradients[name] * scale, quantities, given)
                if self._settings.weight_decay:
                    change = change + self._settings.weight_decay * parameter
                parameter.copy_(torch.where(is_finite, parameter - self._rate * change, parameter))
                if name in self._kept:
                    restore_length(parameter, *self._kept[name])
                for quantity, value in zip(quantities, new, strict=True):
                    quantity.copy_(torch.where(is_finite, value, quantity))
        return norm

    def _step(
        self, parameters: list[Tensor], gradients: list[Tensor], states: Sequence[_State], found_inf: Tensor | None
    ) -> None:
        settings, rate = self._settings, self.learning_rate
        steps = [state.step for state in states]
        # All at once, where all have a gradient: one addition in place of one for each.
        counted = [self._steps] if len(steps) == len(self._named) else steps
        torch._foreach_add_(counted, 1.0)
        if not self._kind.is_fused:
            if settings.weight_decay:
                torch._foreach_mul_(parameters, 1.0 - rate * settings.weight_decay)
            if settings.name in ("rmsprop", "rmsprop_tf"):
                _step_rmsprop(parameters, gradients, [state.quantities[0] for state in states], settings, rate)
                return
            rows = zip(parameters, gradients, states, settings.given(torch.stack(steps)), strict=True)
            for parameter, gradient, state, given in rows:
                change, new = self._kind.change(gradient, state.quantities, given)
                parameter.sub_(change, alpha=rate)
                for quantity, value in zip(state.quantities, new, strict=True):
                    quantity.copy_(value)
            return
        step = torch._fused_adamw_ if settings.weight_decay else torch._fused_adam_
        # torch's own caller sorts tensors by device and dtype in each step: a third of what a small network takes.
        for dtype in {parameter.dtype for parameter in parameters}:
            of_dtype = [i for i, parameter in enumerate(parameters) if parameter.dtype == dtype]
            step(
                [parameters[i] for i in of_dtype],
                [gradients[i] for i in of_dtype],
                [states[i].quantities[0] for i in of_dtype],
                [states[i].quantities[1] for i in of_dtype],
                [],
                [steps[i] for i in of_dtype],
                lr=rate,
                beta1=settings.beta1,
                beta2=BETA2,
                weight_decay=settings.weight_decay,
                eps=settings.epsilon,
                amsgrad=False,
                maximize=False,
                found_inf=found_inf,
            )
        if found_inf is not None:
            torch._foreach_sub_(counted, [found_inf] * len(counted))

    def tensors(self) -> dict[str, Tensor]:
        """The optimizer's state as `<parameter>/<quantity>`, of parameters that have moved: {} before any step."""
        moved = {name: state for name, state in self._state.items() if state.step > 0}
        return {f"{name}/{key}": tensor for name, state in moved.items() for key, tensor in self._items(state)}

    def expected_tensors(self) -> dict[str, Tensor]:
        """The result of `tensors` after a first step, with zeros: names and shapes to check a checkpoint against."""
        fresh = {name: self._fresh(name, torch.zeros(())) for name in self._named}
        return {f"{name}/{key}": tensor for name, state in fresh.items() for key, tensor in self._items(state)}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over a state that `tensors` gave; the caller has checked names and shapes.

        Hyperparameters (learning rate, decay, epsilon) stay those of the constructor: they belong to the configuration.
        """
        with torch.no_grad():
            for name, state in self._state.items():  # in place: graphs know these tensors
                for ours, fresh in zip(state.quantities, self._fresh(name, state.step).quantities, strict=True):
                    ours.copy_(fresh)
        self._steps.zero_()
        for key, tensor in tensors.items():
            name, quantity = key.rsplit("/", 1)
            dict(self._items(self._state_of(name)))[quantity].copy_(tensor)

    def _items(self, state: _State) -> Iterable[tuple[str, Tensor]]:
        return zip(("step", *self._kind.names), (state.step, *state.quantities), strict=True)

    def _state_of(self, name: str) -> _State:
        state = self._state.get(name)
        if state is None:
            state = self._state[name] = self._fresh(name, self._step_of[name])
        return state

    def _fresh(self, name: str, step: Tensor) -> _State:
        with torch.inference_mode(False):
            return _State(step, self._kind.fresh(self._named[name].detach()))


class _State(NamedTuple):
    """State of one parameter."""

    step: Tensor  #: how many it has done, a float32 scalar
    quantities: tuple[Tensor, ...]


def _step_rmsprop(
    parameters: list[Tensor], gradients: list[Tensor], squares: list[Tensor], settings: OptimizerSettings, rate: float
) -> None:
    """Step all parameters at once, by the rule in `update_rules`."""
    torch._foreach_mul_(squares, settings.decay)
    torch._foreach_addcmul_(squares, gradients, gradients, value=1.0 - settings.decay)
    if settings.name == "rmsprop_tf":
        roots = torch._foreach_add(squares, settings.epsilon)
        torch._foreach_sqrt_(roots)
    else:
        roots = torch._foreach_sqrt(squares)
        torch._foreach_add_(roots, settings.epsilon)
    torch._foreach_addcdiv_(parameters, gradients, roots, value=-rate)
