"""Optimizers: the same steps as torch's classes take, and nothing where a gradient is not finite."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from surreal.learner.stepping.optimizers import Optimizer
from surreal.learner.stepping.update_rules import OptimizerSettings
from surreal.model import MLP


class NaiveRMSPropTF:
    """What TensorFlow 1 calls RMSProp, parameter by parameter."""

    def __init__(self, parameters: Iterable[Tensor], *, lr: float, alpha: float, eps: float) -> None:
        self._squares = [(parameter, torch.ones_like(parameter)) for parameter in parameters]
        self._rate, self._decay, self._epsilon = lr, alpha, eps

    @torch.no_grad()
    def step(self) -> None:
        for parameter, square in self._squares:
            assert parameter.grad is not None
            square.copy_(self._decay * square + (1.0 - self._decay) * parameter.grad**2)
            parameter -= self._rate * parameter.grad / (square + self._epsilon).sqrt()


THEIRS: dict[str, Callable[[Any], Any]] = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, eps=1e-8),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "nadam": lambda parameters: torch.optim.NAdam(parameters, lr=0.01),
    "radam": lambda parameters: torch.optim.RAdam(parameters, lr=0.01),
    "adamax": lambda parameters: torch.optim.Adamax(parameters, lr=0.01),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.01),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, alpha=0.9, eps=0.01),
    "rmsprop_tf": lambda parameters: NaiveRMSPropTF(parameters, lr=0.01, alpha=0.9, eps=1e-5),
}


def gradients_of(model: nn.Module, scale: float, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: scale * torch.randn(each.shape, generator=generator).to(each.dtype)
        for name, each in model.named_parameters()
    }


def apply(optimizer: Optimizer, gradients: dict[str, Tensor], max_norm: float | None = None) -> float:
    return float(optimizer.apply(gradients, max_norm=max_norm, lock=threading.RLock()))


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("max_norm", [None, 1.0, 1e3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps_are_those_of_torchs_class(name: str, max_norm: float | None, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ours, theirs = MLP((3, 5, 2)), MLP((3, 5, 2))
    for model in (ours, theirs):
        next(iter(model.children())).to(dtype)  # some parameters may be of another one
    theirs.load_state_dict(ours.state_dict())
    optimizer = Optimizer(ours.named_parameters(), OptimizerSettings(name, 0.01, 0.9))
    reference = THEIRS[name](theirs.parameters())
    for step in range(8):  # RAdam's sixth step is of another kind than the first five
        gradients = gradients_of(ours, 1.0, step)
        for parameter, gradient in zip(theirs.parameters(), gradients.values(), strict=True):
            parameter.grad = gradient.clone()
        norm = nn.utils.clip_grad_norm_(theirs.parameters(), max_norm if max_norm is not None else torch.inf)
        assert apply(optimizer, gradients, max_norm) == pytest.approx(float(norm), rel=1e-6)
        reference.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize(
    ("settings", "theirs_of"),
    [
        *((OptimizerSettings(name, 0.01, 0.9), make) for name, make in THEIRS.items()),
        (OptimizerSettings("adam", 0.01, beta1=0.5), lambda each: torch.optim.Adam(each, lr=0.01, betas=(0.5, 0.999))),
        (
            OptimizerSettings("adam", 0.01, beta1=0.5, weight_decay=0.1),
            lambda each: torch.optim.AdamW(each, lr=0.01, betas=(0.5, 0.999), weight_decay=0.1),
        ),
        (
            OptimizerSettings("radam", 0.01, beta1=0.5, weight_decay=0.1),
            lambda each: torch.optim.RAdam(
                each, lr=0.01, betas=(0.5, 0.999), weight_decay=0.1, decoupled_weight_decay=True
            ),
        ),
        (OptimizerSettings("sgd", 0.01, beta1=0.9), lambda each: torch.optim.SGD(each, lr=0.01, momentum=0.9)),
        (
            OptimizerSettings("sgd", 0.01, weight_decay=0.1),
            lambda each: torch.optim.SGD(each, lr=0.01, weight_decay=0.1),
        ),
    ],
)
def test_steps_in_a_graph_and_other_options_are_those_of_torchs_class(
    settings: OptimizerSettings, theirs_of: Callable[[Any], Any]
) -> None:
    ours, theirs, recorded = MLP((3, 5, 2)), MLP((3, 5, 2)), MLP((3, 5, 2))
    for model in (theirs, recorded):
        model.load_state_dict(ours.state_dict())
    optimizer, in_graph = (Optimizer(model.named_parameters(), settings) for model in (ours, recorded))
    reference = theirs_of(theirs.parameters())
    in_graph.show_rate()
    for step in range(8):
        gradients = gradients_of(ours, 1.0, step)
        for parameter, gradient in zip(theirs.parameters(), gradients.values(), strict=True):
            parameter.grad = gradient.clone()
        in_graph.apply_in_graph({name: gradient.clone() for name, gradient in gradients.items()}, max_norm=None)
        apply(optimizer, gradients)
        reference.step()
    for mine, graphs, other in zip(ours.parameters(), recorded.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other)
        torch.testing.assert_close(graphs, other)
    assert optimizer.kind != Optimizer(ours.named_parameters(), OptimizerSettings("adam", 0.01, epsilon=0.1)).kind


def test_weight_decay_leaves_a_temperature() -> None:
    temperature = torch.tensor(-2.0, requires_grad=True)
    optimizer = Optimizer([("log_value", temperature)], OptimizerSettings("adam", 0.01, weight_decay=10.0))
    apply(optimizer, {"log_value": torch.tensor(0.0)})
    assert temperature.item() == -2.0


@pytest.mark.parametrize("name", THEIRS)
def test_a_parameter_without_a_gradient_stays_and_has_its_first_step_later(name: str) -> None:
    model = MLP((3, 5, 2))
    optimizer = Optimizer(model.named_parameters(), OptimizerSettings(name, 0.01))
    first = next(iter(optimizer.named))
    before = model.get_parameter(first).detach().clone()
    gradients = gradients_of(model, 1.0, 0)
    apply(optimizer, {name: tensor for name, tensor in gradients.items() if name != first})
    assert torch.equal(model.get_parameter(first), before)
    assert f"{first}/step" not in optimizer.tensors()
    apply(optimizer, gradients_of(model, 1.0, 1))
    assert not torch.equal(model.get_parameter(first), before)
    steps = {key: float(value) for key, value in optimizer.tensors().items() if key.endswith("/step")}
    assert steps == {f"{name}/step": 1.0 if name == first else 2.0 for name in optimizer.named}


@pytest.mark.parametrize("name", THEIRS)
def test_a_state_that_was_taken_over_goes_on_as_the_one_that_it_was_of(name: str) -> None:
    torch.manual_seed(0)
    model, twin = MLP((3, 5, 2)), MLP((3, 5, 2))
    optimizer = Optimizer(model.named_parameters(), OptimizerSettings(name, 0.01))
    apply(optimizer, gradients_of(model, 1.0, 0))
    twin.load_state_dict(model.state_dict())
    other = Optimizer(twin.named_parameters(), OptimizerSettings(name, 0.01))
    saved = {key: tensor.clone() for key, tensor in optimizer.tensors().items()}
    expected = other.expected_tensors()
    assert {key: tensor.shape for key, tensor in saved.items()} == {key: each.shape for key, each in expected.items()}
    other.load_tensors(saved)
    for each, network in ((optimizer, model), (other, twin)):
        apply(each, gradients_of(network, 1.0, 1))
    for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 3e38])
def test_a_gradient_that_is_not_finite_changes_nothing(bad: float) -> None:
    model = MLP((3, 5, 2))
    optimizer = Optimizer(model.named_parameters(), OptimizerSettings())
    before = [parameter.detach().clone() for parameter in model.parameters()]
    gradients = gradients_of(model, 1.0, 0)
    next(iter(gradients.values()))[:2, 0] = bad
    assert not torch.tensor(apply(optimizer, gradients, 0.5)).isfinite()
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
    assert optimizer.tensors() == {}


#: The private functions of torch that the optimizers use.
PRIVATE_FUNCTIONS = {
    *("_foreach_add", "_foreach_add_", "_foreach_addcdiv_", "_foreach_addcmul_", "_foreach_mul_", "_foreach_norm"),
    *("_foreach_sqrt", "_foreach_sqrt_", "_foreach_sub_", "_fused_adam_", "_fused_adamw_"),
}


def test_torch_still_has_the_private_functions() -> None:
    missing = {name for name in PRIVATE_FUNCTIONS if not callable(getattr(torch, name, None))}
    assert not missing, f"learner/stepping/optimizers.py needs another way without torch's {missing}"


def test_no_other_private_function_of_torch_is_used() -> None:
    text = Path(inspect.getfile(Optimizer)).read_text(encoding="utf-8")
    assert set(re.findall(r"\btorch\.(_\w+)", text)) == PRIVATE_FUNCTIONS
