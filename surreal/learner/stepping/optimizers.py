"""Optimizers by name, over named parameters: gradients, steps, and the state that checkpoints keep."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.rmsprop import rmsprop

from surreal.model.lengths import kept_length, restore_length

OPTIMIZERS = ("adam", "rmsprop", "rmsprop_tf")
#: State of each in addition to the number of steps, one tensor of a parameter's shape each.
_QUANTITIES = {"adam": ("exp_avg", "exp_avg_sq"), "rmsprop": ("square_avg",), "rmsprop_tf": ("square_avg",)}
#: Default epsilon of each optimizer.
_EPSILONS = {"adam": 1e-8, "rmsprop": 0.01, "rmsprop_tf": 1e-5}
#: Decay of Adam's mean of squared gradients.
_BETA2 = 0.999
#: Keeps a division by a norm finite.
_TINY = 1e-6
#: Name of the group of parameters that is all of the model's, or all but a group with its own name.
MODEL = "model"


@dataclass(frozen=True)
class OptimizerSettings:
    """Choice of an optimizer and its settings.

    Args:
        name: "adam", "rmsprop" or "rmsprop_tf", in any case. The last is RMSProp as TensorFlow 1 has it: its mean of
            squared gradients begins at one, so that first steps are short, and epsilon is added inside the root.
        learning_rate: learning rate of the first step, > 0.
        decay: decay of RMSProp's running mean of squared gradients, in [0, 1); raising it averages over more updates.
        epsilon: added to the root of that mean, > 0; raising it shortens the steps of parameters with small gradients.
            None takes 1e-8 for Adam, 0.01 for RMSProp and 1e-5 for rmsprop_tf.
        beta1: decay of Adam's mean of gradients, in [0, 1); raising it averages over more updates.
        weight_decay: share of each parameter, times the learning rate, that a step of Adam also takes away, >= 0
            (AdamW, arXiv:1711.05101); raising it keeps parameters smaller. Single numbers, such as the logarithm of a
            temperature, do not decay.
    """

    name: str = "adam"
    learning_rate: float = 1e-3
    decay: float = 0.99
    epsilon: float | None = None
    beta1: float = 0.9
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if self.name.lower() not in OPTIMIZERS:
            raise ValueError(f"optimizer is {self.name!r}; it must be one of {', '.join(OPTIMIZERS)}")
        if self.weight_decay > 0.0 and not self.is_fused:
            raise ValueError(
                f"weight_decay is {self.weight_decay}, but optimizer is {self.name}; weight_decay needs adam"
            )

    @property
    def is_fused(self) -> bool:
        """Whether a step is one kernel."""
        return self.name.lower() == "adam"


class Optimizer:
    """An optimizer over named parameters: torch's own steps, on a state that is kept here.

    torch's classes look at every parameter again in each step. For a small network that costs twice as much as the
    step.

    Args:
        parameters: pairs of name and parameter, all on one device; those that need no gradient are passed over.
        settings: which optimizer.

    Attributes:
        learning_rate: learning rate of the next step.
    """

    def __init__(self, parameters: Iterable[tuple[str, Tensor]], settings: OptimizerSettings) -> None:
        self._named = {name: tensor for name, tensor in parameters if tensor.requires_grad}
        self._parameters = list(self._named.values())
        self._kept = {name: kept for name, tensor in self._named.items() if (kept := kept_length(tensor)) is not None}
        if all(tensor.ndim == 0 for tensor in self._parameters):
            settings = replace(settings, weight_decay=0.0)
        self._settings = settings
        self.learning_rate = settings.learning_rate
        self._state: dict[str, _State] = {}
        # The fused kernel counts on the device, the other one where it costs nothing.
        device = self._parameters[0].device if self._parameters and settings.is_fused else None
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
        return [*astuple(replace(self._settings, name=self._settings.name.lower(), learning_rate=0.0)), self._kept]

    def show_rate(self) -> None:
        """Copy the learning rate of the next step to where graphs read it."""
        if self.learning_rate != self._shown_rate:
            self._shown_rate = self.learning_rate
            self._rate.fill_(self.learning_rate)

    def live_tensors(self) -> dict[str, Tensor]:
        """Return everything that `apply_in_graph` reads and changes, by name, the parameters too; none is replaced."""
        found = {"rate": self._rate, "steps": self._steps}
        for name, parameter in self._named.items():
            quantities = zip(_QUANTITIES[self._settings.name.lower()], self._state_of(name).quantities, strict=True)
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
        """Take one step down these gradients, which are scaled in place; none if one of them is not finite.

        Args:
            gradients: by the parameter's name; a parameter without one is unchanged.
            max_norm: gradients whose global norm is larger are scaled down to it; None clips nothing.
            lock: held while parameters change.
            norm: global norm of the gradients, if these are a part of them, or it is known; a scalar.

        Returns:
            The global norm of the gradients before clipping, a scalar: if it is not finite, nothing was changed.
        """
        for name, parameter in self._named.items():
            parameter.grad = gradients.get(name)  # where a debugger looks for it
        names, tensors = list(gradients), list(gradients.values())
        if norm is None:
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)))
        found_inf = None
        if norm.is_cuda and self._settings.is_fused:
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
        """Take the same step as `apply` by pure operations, which read no number: for a graph.

        Returns:
            The global norm of the gradients before clipping, a scalar.
        """
        norms = torch.stack([torch.linalg.vector_norm(each) for each in gradients.values()])
        norm: Tensor = torch.linalg.vector_norm(norms)
        is_finite = norm.isfinite()
        scale = 1.0 if max_norm is None else (max_norm / (norm + _TINY)).clamp(max=1.0)
        given, kind = self._settings.epsilon, self._settings.name.lower()
        epsilon = _EPSILONS[kind] if given is None else given
        first, second = self._settings.beta1, _BETA2
        has_gradient = torch.tensor([name in gradients for name in self._named], device=self._steps.device)
        with torch.no_grad():
            self._steps.add_(has_gradient & is_finite.to(self._steps.device))
            biases = 1.0 - first**self._steps, (1.0 - second**self._steps).sqrt()
            for number, (name, parameter) in enumerate(self._named.items()):
                if name not in gradients:
                    continue
                gradient, quantities = gradients[name] * scale, self._state_of(name).quantities
                new: tuple[Tensor, ...]
                if self._settings.is_fused:
                    mean = torch.lerp(quantities[0], gradient, 1.0 - first)
                    square = second * quantities[1] + (1.0 - second) * gradient.square()
                    root = square.sqrt() / biases[1][number] + epsilon
                    change, new = mean / biases[0][number] / root, (mean, square)
                    if self._settings.weight_decay > 0.0:
                        change = change + self._settings.weight_decay * parameter
                else:
                    square = self._settings.decay * quantities[0] + (1.0 - self._settings.decay) * gradient.square()
                    root = (square + epsilon).sqrt() if kind == "rmsprop_tf" else square.sqrt() + epsilon
                    change, new = gradient / root, (square,)
                parameter.copy_(torch.where(is_finite, parameter - self._rate * change, parameter))
                if name in self._kept:
                    restore_length(parameter, *self._kept[name])
                for quantity, value in zip(quantities, new, strict=True):
                    quantity.copy_(torch.where(is_finite, value, quantity))
        return norm

    def _step(
        self, parameters: list[Tensor], gradients: list[Tensor], states: Sequence[_State], found_inf: Tensor | None
    ) -> None:
        steps = [state.step for state in states]
        squares = [state.quantities[-1] for state in states]
        given, name, rate = self._settings.epsilon, self._settings.name.lower(), self.learning_rate
        epsilon = _EPSILONS[name] if given is None else given
        if self._settings.is_fused:
            # All at once, where all have a gradient: one addition in place of one for each.
            counted = [self._steps] if len(steps) == len(self._named) else steps
            torch._foreach_add_(counted, 1.0)
            step = torch._fused_adamw_ if self._settings.weight_decay > 0.0 else torch._fused_adam_
            # torch's own caller sorts tensors by device and dtype in each step: a third of what a small network takes.
            for dtype in {parameter.dtype for parameter in parameters}:
                of_dtype = [i for i, parameter in enumerate(parameters) if parameter.dtype == dtype]
                step(
                    [parameters[i] for i in of_dtype],
                    [gradients[i] for i in of_dtype],
                    [states[i].quantities[0] for i in of_dtype],
                    [squares[i] for i in of_dtype],
                    [],
                    [steps[i] for i in of_dtype],
                    lr=rate,
                    beta1=self._settings.beta1,
                    beta2=_BETA2,
                    weight_decay=self._settings.weight_decay,
                    eps=epsilon,
                    amsgrad=False,
                    maximize=False,
                    found_inf=found_inf,
                )
            if found_inf is not None:
                torch._foreach_sub_(counted, [found_inf] * len(counted))
            return
        if name == "rmsprop_tf":
            decay = self._settings.decay
            torch._foreach_add_(steps, 1.0)
            torch._foreach_mul_(squares, decay)
            torch._foreach_addcmul_(squares, gradients, gradients, value=1.0 - decay)
            roots = torch._foreach_add(squares, epsilon)
            torch._foreach_sqrt_(roots)
            torch._foreach_addcdiv_(parameters, gradients, roots, value=-rate)
            return
        rmsprop(
            parameters,
            gradients,
            squares,
            [],
            [],
            steps,
            foreach=True,
            lr=rate,
            alpha=self._settings.decay,
            eps=epsilon,
            weight_decay=0.0,
            momentum=0.0,
            centered=False,
        )

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
        return zip(("step", *_QUANTITIES[self._settings.name.lower()]), (state.step, *state.quantities), strict=True)

    def _state_of(self, name: str) -> _State:
        state = self._state.get(name)
        if state is None:
            state = self._state[name] = self._fresh(name, self._step_of[name])
        return state

    def _fresh(self, name: str, step: Tensor) -> _State:
        parameter, kind = self._named[name].detach(), self._settings.name.lower()
        begin = torch.ones_like if kind == "rmsprop_tf" else torch.zeros_like
        with torch.inference_mode(False):
            return _State(step, tuple(begin(parameter) for _ in _QUANTITIES[kind]))


class _State(NamedTuple):
    """State of one parameter."""

    step: Tensor  #: how many it has done, a float32 scalar
    quantities: tuple[Tensor, ...]
