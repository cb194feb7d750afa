"""Optimizers by name, over named parameters: gradients, steps, and the state that checkpoints keep."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

OPTIMIZERS = ("adam", "rmsprop")
#: Name of the group of parameters that is all of the model's, or all but a group with a name of its own.
MODEL = "model"


def check_max_norm(max_norm: float | None) -> None:
    """Refuse a bound of the gradients' norm that would stop or reverse all learning."""
    if max_norm is not None and not max_norm > 0.0:
        raise ValueError(f"gradients_norm_clipping is {max_norm}; it must be > 0 or null")


@dataclass(frozen=True)
class OptimizerSettings:
    """Which optimizer to make.

    Args:
        name: "adam" or "rmsprop", in any case.
        learning_rate: of the first step, > 0.
        decay: of RMSProp's running mean of squared gradients, in [0, 1); raising it averages over more updates.
        epsilon: added to the root of that mean, > 0; raising it shortens the steps of parameters with small gradients.
            None takes 1e-8 for Adam and 0.01 for RMSProp.
    """

    name: str = "adam"
    learning_rate: float = 1e-3
    decay: float = 0.99
    epsilon: float | None = None

    def __post_init__(self) -> None:
        if self.name.lower() not in OPTIMIZERS:
            raise ValueError(f"optimizer is {self.name!r}; it must be one of {', '.join(OPTIMIZERS)}")
        if not self.learning_rate > 0.0:
            raise ValueError(f"initial_learning_rate is {self.learning_rate}; it must be > 0")
        if not 0.0 <= self.decay < 1.0:
            raise ValueError(f"decay is {self.decay}; it must be in [0, 1)")
        if self.epsilon is not None and not self.epsilon > 0.0:
            raise ValueError(f"epsilon is {self.epsilon}; it must be > 0")

    @property
    def is_fused(self) -> bool:
        """Whether a step is one kernel."""
        return self.name.lower() == "adam"

    def make(self, parameters: list[Tensor]) -> torch.optim.Optimizer:
        """Make the optimizer of parameters that are all on one device."""
        if self.is_fused:
            eps = 1e-8 if self.epsilon is None else self.epsilon
            # The fused kernel is the fastest on the CPU too: a third of the per-tensor form's time on a small network.
            return torch.optim.Adam(parameters, lr=self.learning_rate, eps=eps, fused=True)
        eps = 0.01 if self.epsilon is None else self.epsilon
        return torch.optim.RMSprop(parameters, lr=self.learning_rate, alpha=self.decay, eps=eps, foreach=True)


class Optimizer:
    """An optimizer over named parameters.

    Args:
        parameters: pairs of name and parameter, all on one device; those that need no gradient are passed over.
        settings: which optimizer.
    """

    def __init__(self, parameters: Iterable[tuple[str, Tensor]], settings: OptimizerSettings) -> None:
        self._named = {name: tensor for name, tensor in parameters if tensor.requires_grad}
        self._parameters = list(self._named.values())
        self._settings = settings
        self._optimizer = settings.make(self._parameters)

    @property
    def named(self) -> Mapping[str, Tensor]:
        """Its parameters, by name."""
        return self._named

    @property
    def learning_rate(self) -> float:
        """Of the next step."""
        return float(self._optimizer.param_groups[0]["lr"])

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = value

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
        """Do one step down these gradients, which are scaled in place; none if one of them is not finite.

        Args:
            gradients: by the parameter's name; a parameter without one stays as it is.
            max_norm: gradients whose global norm is larger are scaled down to it; None clips nothing.
            lock: held while parameters change.
            norm: global norm of the gradients, if these are a part of them, or it is known; a scalar.

        Returns:
            The global norm of the gradients before clipping, a scalar: if it is not finite, nothing was changed.
        """
        for name, parameter in self._named.items():
            parameter.grad = gradients.get(name)
        tensors = list(gradients.values())
        if norm is None:
            norm = torch.nn.utils.get_total_norm(tensors, foreach=True)
        if max_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(self._parameters, max_norm, norm, foreach=True)
        if norm.is_cuda and self._settings.is_fused:
            # The kernel itself leaves everything as it is where this is 1, so nobody waits for the device.
            self._optimizer.found_inf = (~norm.isfinite()).to(torch.float32)  # type: ignore[attr-defined]
        elif not math.isfinite(norm):
            return norm
        with lock:
            self._optimizer.step()
        return norm

    def tensors(self) -> dict[str, Tensor]:
        """The optimizer's state as `<parameter>/<quantity>`: empty before the first step."""
        return _state_of(self._optimizer, self._named)

    def expected_tensors(self) -> dict[str, Tensor]:
        """What `tensors` gives after a first step, with zeros: names and shapes to check a checkpoint against."""
        scratch = {name: torch.zeros_like(tensor, requires_grad=True) for name, tensor in self._named.items()}
        twin = self._settings.make(list(scratch.values()))
        for tensor in scratch.values():
            tensor.grad = torch.zeros_like(tensor)
        twin.step()
        return _state_of(twin, scratch)

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over a state that `tensors` gave; the caller has checked names and shapes.

        Hyperparameters (learning rate, decay, epsilon) stay those of the constructor: they belong to the configuration.
        """
        index = {name: place for place, name in enumerate(self._named)}
        state: dict[int, dict[str, Any]] = {}
        for key, tensor in tensors.items():
            name, quantity = key.rsplit("/", 1)
            state.setdefault(index[name], {})[quantity] = tensor.clone()
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": state})


def _state_of(optimizer: torch.optim.Optimizer, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {
        f"{name}/{quantity}": torch.as_tensor(value)
        for name, parameter in named.items()
        for quantity, value in optimizer.state.get(parameter, {}).items()
    }
