"""From a loss to changed parameters: optimizers by name, gradient clipping, and their state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from surreal.utils.pytorch import Module

OPTIMIZERS = ("adam", "rmsprop")
MakeOptimizer = Callable[[list[Tensor]], torch.optim.Optimizer]


def check_max_norm(max_norm: float | None) -> None:
    """Refuse a bound of the gradients' norm that would stop or reverse all learning."""
    if max_norm is not None and not max_norm > 0.0:
        raise ValueError(f"gradients_norm_clipping is {max_norm}; it must be > 0 or null")


def check_optimizer(name: str, *, learning_rate: float, decay: float = 0.99, epsilon: float | None = None) -> None:
    """Refuse settings that `make_optimizer` could not use, without making one: that imports all of torch's compiler."""
    if name.lower() not in OPTIMIZERS:
        raise ValueError(f"optimizer is {name!r}; it must be one of {', '.join(OPTIMIZERS)}")
    if not learning_rate > 0.0:
        raise ValueError(f"initial_learning_rate is {learning_rate}; it must be > 0")
    if not 0.0 <= decay < 1.0:
        raise ValueError(f"decay is {decay}; it must be in [0, 1)")
    if epsilon is not None and not epsilon > 0.0:
        raise ValueError(f"epsilon is {epsilon}; it must be > 0")


def make_optimizer(
    name: str, parameters: list[Tensor], *, learning_rate: float, decay: float = 0.99, epsilon: float | None = None
) -> torch.optim.Optimizer:
    """Make the optimizer called `name`.

    Args:
        name: "adam" or "rmsprop", in any case.
        parameters: all on one device; none may be replaced afterwards.
        learning_rate: > 0.
        decay: of RMSProp's running mean of squared gradients, in [0, 1); raising it averages over more updates.
        epsilon: added to the root of that mean, > 0; raising it shortens the steps of parameters with small gradients.
            None takes 1e-8 for Adam and 0.01 for RMSProp.
    """
    check_optimizer(name, learning_rate=learning_rate, decay=decay, epsilon=epsilon)
    if name.lower() == "adam":
        # The fused kernel is the fastest on the CPU too: a third of the per-tensor form's time on a small network.
        return torch.optim.Adam(parameters, lr=learning_rate, eps=1e-8 if epsilon is None else epsilon, fused=True)
    eps = 0.01 if epsilon is None else epsilon
    return torch.optim.RMSprop(parameters, lr=learning_rate, alpha=decay, eps=eps, foreach=True)


class GradientStep:
    """Owns a model's optimizer and applies gradients to it.

    The lock is held only while parameters change: agents in this process, which share the model, act on meanwhile.

    Args:
        model: materialized, on its final device.
        make: makes the optimizer of a list of parameters; see `make_optimizer`.
        max_norm: gradients whose global norm is larger are scaled down to it; None clips nothing. Raising it lets
            rare large errors move the parameters further.
    """

    def __init__(self, model: Module, make: MakeOptimizer, *, max_norm: float | None) -> None:
        check_max_norm(max_norm)
        self.max_norm = max_norm
        self._lock: threading.RLock = model.lock
        self._named = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
        self._parameters: list[Tensor] = list(self._named.values())
        self._make = make
        self.optimizer = make(self._parameters)

    @property
    def learning_rate(self) -> float:
        """Of the next step."""
        return float(self.optimizer.param_groups[0]["lr"])

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = value

    def apply(self, loss: Tensor) -> Tensor | None:
        """Do one step down the gradient of `loss`.

        Returns:
            The global norm of the gradient before clipping, a scalar, or None without clipping.
        """
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        norm = None
        if self.max_norm is not None:
            norm = torch.nn.utils.clip_grad_norm_(self._parameters, self.max_norm, foreach=True)
        with self._lock:
            self.optimizer.step()
        return norm

    def tensors(self) -> dict[str, Tensor]:
        """The optimizer's state as `<parameter>/<slot>`: empty before the first step."""
        slots: dict[str, Tensor] = {}
        for name, parameter in self._named.items():
            for slot, value in self.optimizer.state.get(parameter, {}).items():
                slots[f"{name}/{slot}"] = torch.as_tensor(value)
        return slots

    def expected_tensors(self) -> dict[str, Tensor]:
        """What `tensors` gives after a first step, with zeros: names and shapes to check a checkpoint against."""
        scratch: list[Tensor] = [torch.zeros_like(tensor, requires_grad=True) for tensor in self._parameters]
        twin = self._make(scratch)
        for tensor in scratch:
            tensor.grad = torch.zeros_like(tensor)
        twin.step()
        return {
            f"{name}/{slot}": torch.as_tensor(value)
            for name, tensor in zip(self._named, scratch, strict=True)
            for slot, value in twin.state[tensor].items()
        }

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over a state that `tensors` gave; the caller has checked names and shapes.

        Hyperparameters (learning rate, decay, epsilon) stay those of the constructor: they belong to the configuration.
        """
        index = {name: place for place, name in enumerate(self._named)}
        state: dict[int, dict[str, Any]] = {}
        for key, tensor in tensors.items():
            name, slot = key.rsplit("/", 1)
            state.setdefault(index[name], {})[slot] = tensor.clone()
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
