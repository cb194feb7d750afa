"""Rules of optimizers: how much a parameter changes for a gradient. Pure operations, which a graph can record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from surreal.base.ranges import AnyCase

#: Decay of the mean of squared gradients of Adam and its relatives.
BETA2 = 0.999

_Name = Literal["adam", "adamw", "nadam", "radam", "adamax", "adagrad", "sgd", "rmsprop", "rmsprop_tf"]
OptimizerName = Annotated[_Name, AnyCase]


class Given(NamedTuple):
    """Numbers of an optimizer that a rule computes with."""

    beta1: float
    decay: float
    epsilon: float
    bias1: Tensor  #: 1 - beta1^n after n steps of this parameter, this one included; a scalar
    bias2: Tensor  #: 1 - BETA2^n
    step: Tensor  #: n


#: Takes a gradient and quantities, and returns the change for a learning rate of 1, and new quantities.
_Rule: TypeAlias = Callable[[Tensor, Sequence[Tensor], Given], tuple[Tensor, tuple[Tensor, ...]]]


def _moments(gradient: Tensor, quantities: Sequence[Tensor], given: Given) -> tuple[Tensor, Tensor]:
    mean = torch.lerp(quantities[0], gradient, 1.0 - given.beta1)
    return mean, BETA2 * quantities[1] + (1.0 - BETA2) * gradient.square()


def _adam(gradient: Tensor, quantities: Sequence[Tensor], given: Given) -> tuple[Tensor, tuple[Tensor, ...]]:
    mean, square = _moments(gradient, quantities, given)
    root = square.sqrt() / given.bias2.sqrt() + given.epsilon
    return mean / given.bias1 / root, (mean, square)


def _nadam(gradient: Tensor, quantities: Sequence[Tensor], given: Given) -> tuple[Tensor, tuple[Tensor, ...]]:
    mean, square = _moments(gradient, quantities, given)
    step = given.step.double()
    now, following = (given.beta1 * (1.0 - 0.5 * 0.96 ** (0.004 * (step + later))) for later in (0, 1))
    product = quantities[2] * now
    change = gradient * ((1.0 - now) / (1.0 - product)) + mean * (following / (1.0 - product * following))
    root = square.sqrt() / (1.0 - BETA2**step).sqrt() + given.epsilon
    return change / root, (mean, square, product)


def _radam(gradient: Tensor, quantities: Sequence[Tensor], given: Given) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Scale steps by the variance of their length; the first five are those of momentum (Liu et al. 2020)."""
    mean, square = _moments(gradient, quantities, given)
    step = given.step.double()  # single precision is too coarse for n * BETA2^n
    limit, bias = 2.0 / (1.0 - BETA2) - 1.0, 1.0 - BETA2**step
    length = limit - 2.0 * step * (1.0 - bias) / bias
    is_long = length > 5.0
    ratio = (length - 4.0) * (length - 2.0) / length * (limit / ((limit - 4.0) * (limit - 2.0)))
    rectified = (torch.where(is_long, ratio, 0.0) * bias).sqrt()
    scale = rectified / (square.sqrt() + given.epsilon) + is_long.logical_not()
    return mean / given.bias1 * scale, (mean, square)


def _adamax(gradient: Tensor, quantities: Sequence[Tensor], given: Given) -> tuple[Tensor, tuple[Tensor, ...]]:
    mean = torch.lerp(quantities[0], gradient, 1.0 - given.beta1)
    largest = torch.maximum(BETA2 * quantities[1], gradient.abs() + given.epsilon)
    return mean / given.bias1 / largest, (mean, largest)


def _adagrad(gradient: Tensor, quantities: Sequence[Tensor], given: Given) -> tuple[Tensor, tuple[Tensor, ...]]:
    total = quantities[0] + gradient.square()
    return gradient / (total.sqrt() + given.epsilon), (total,)


def _sgd(gradient: Tensor, quantities: Sequence[Tensor], given: Given) -> tuple[Tensor, tuple[Tensor, ...]]:
    momentum = given.beta1 * quantities[0] + gradient
    return momentum, (momentum,)


def _rmsprop(gradient: Tensor, quantities: Sequence[Tensor], given: Given) -> tuple[Tensor, tuple[Tensor, ...]]:
    square = given.decay * quantities[0] + (1.0 - given.decay) * gradient.square()
    return gradient / (square.sqrt() + given.epsilon), (square,)


def _rmsprop_tf(gradient: Tensor, quantities: Sequence[Tensor], given: Given) -> tuple[Tensor, tuple[Tensor, ...]]:
    square = given.decay * quantities[0] + (1.0 - given.decay) * gradient.square()
    return gradient / (square + given.epsilon).sqrt(), (square,)


class _Kind(NamedTuple):
    """An optimizer: its rule and its defaults."""

    change: _Rule
    quantities: tuple[str, ...]  #: names of what it keeps of each parameter, in the parameter's shape
    epsilon: float
    beta1: float = 0.9
    weight_decay: float = 0.0
    begin: float = 0.0  #: value of new quantities
    is_fused: bool = False  #: whether torch has one kernel for a whole step
    scalars: Mapping[str, float] = {}  #: further quantities, single numbers, with their first values

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.quantities, *self.scalars)

    def fresh(self, parameter: Tensor) -> tuple[Tensor, ...]:
        """Make the quantities of a parameter before its first step."""
        shaped = [torch.full_like(parameter, self.begin) for _ in self.quantities]
        return (*shaped, *(parameter.new_full((), value) for value in self.scalars.values()))


_ADAM = ("exp_avg", "exp_avg_sq")
_KINDS: dict[str, _Kind] = {
    "adam": _Kind(_adam, _ADAM, 1e-8, is_fused=True),
    "adamw": _Kind(_adam, _ADAM, 1e-8, weight_decay=0.01, is_fused=True),
    "nadam": _Kind(_nadam, _ADAM, 1e-8, scalars={"mu_product": 1.0}),
    "radam": _Kind(_radam, _ADAM, 1e-8),
    "adamax": _Kind(_adamax, ("exp_avg", "exp_inf"), 1e-8),
    "adagrad": _Kind(_adagrad, ("sum",), 1e-10),
    "sgd": _Kind(_sgd, ("momentum_buffer",), 1e-8, beta1=0.0),
    "rmsprop": _Kind(_rmsprop, ("square_avg",), 0.01),
    "rmsprop_tf": _Kind(_rmsprop_tf, ("square_avg",), 1e-5, begin=1.0),
}


#: Stands for the default of the optimizer.
_DEFAULT: Any = None


@dataclass(frozen=True)
class OptimizerSettings:
    """Choice of an optimizer and its settings."""

    #: name of the optimizer in torch, in lower case. rmsprop_tf is RMSProp as TensorFlow 1 has it: its mean of squared
    #: gradients begins at one, so that first steps are short, and epsilon is added inside the root.
    name: str = "adam"
    learning_rate: float = 1e-3  #: learning rate of the first step, > 0
    #: decay of RMSProp's running mean of squared gradients, in [0, 1); raising it averages over more updates
    decay: float = 0.99
    #: added to the divisor, > 0; raising it shortens the steps of parameters with small gradients. Default: 1e-8, for
    #: rmsprop 0.01, for rmsprop_tf 1e-5, for adagrad 1e-10.
    epsilon: float = _DEFAULT
    #: decay of the mean of gradients of Adam and its relatives, and momentum of sgd, in [0, 1); raising it averages
    #: over more updates. Default: 0.9, for sgd 0.
    beta1: float = _DEFAULT
    #: share of each parameter, times the learning rate, that a step also takes away, >= 0 (AdamW, arXiv:1711.05101);
    #: raising it keeps parameters smaller. Single numbers, such as the logarithm of a temperature, do not decay.
    #: Default: 0, for adamw 0.01.
    weight_decay: float = _DEFAULT

    def __post_init__(self) -> None:
        for option in ("epsilon", "beta1", "weight_decay"):
            if getattr(self, option) is _DEFAULT:
                object.__setattr__(self, option, getattr(self.kind, option))

    @property
    def kind(self) -> _Kind:
        return _KINDS[self.name]

    def given(self, steps: Tensor) -> list[Given]:
        """Return the numbers that the rule computes with, for each parameter; `steps` [n] counts their steps."""
        columns = (1.0 - self.beta1**steps, 1.0 - BETA2**steps, steps)
        rows = zip(*(column.unbind() for column in columns), strict=True)
        return [Given(self.beta1, self.decay, self.epsilon, *each) for each in rows]
