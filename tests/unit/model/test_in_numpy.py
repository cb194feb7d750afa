"""The forward pass in NumPy computes what torch computes, for every kind of model that has one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.base import tree
from surreal.base.pytorch import to_tensors
from surreal.base.specs import ObsSpec
from surreal.model import (
    ActorCritic,
    DeterministicActorCritic,
    DiscreteSoftActorCritic,
    Distribution,
    ImplicitActorCritic,
    Model,
    NoisyQFunction,
    NoisyQuantileQFunction,
    QFunction,
    QuantileQFunction,
    SoftActorCritic,
)
from surreal.model.activations import ACTIVATIONS
from surreal.model.actor_critic import ValueFunction
from surreal.model.in_numpy import NumpyPass, NumpyPolicy

ROWS = 8
VECTOR = np.random.default_rng(0).normal(size=(ROWS, 5)).astype(np.float32)
NESTED = {
    "frame": np.random.default_rng(1).integers(0, 256, size=(ROWS, 2, 3), dtype=np.uint8),
    "pose": (VECTOR.astype(np.float64), np.arange(ROWS)),
}
FOUR, BOX = spaces.Discrete(4), spaces.Box(np.array([-1, 0], np.float32), np.array([3, 5], np.float32))
CHOICES, SWITCHES = spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(3)

MODELS: Mapping[str, Callable[[], Model]] = {
    "categorical": lambda: ActorCritic(action_space=FOUR),
    "multi-discrete": lambda: ActorCritic(action_space=CHOICES),
    "switches": lambda: ActorCritic(action_space=SWITCHES),
    "normal": lambda: ActorCritic(action_space=BOX, log_sigma=-0.5),
    "normal by state": lambda: ActorCritic(action_space=BOX, sigma="state", log_sigma=-0.5),
    "value apart": lambda: ActorCritic([16], action_space=FOUR, value_hiddens=[8, 8]),
    "filter": lambda: ActorCritic(action_space=FOUR, normalize_obs=True),
    "layer norm": lambda: ActorCritic(action_space=FOUR, norm="layer", value_hiddens=[8]),
    "q, rms norm": lambda: QFunction(action_space=4, norm="rms"),
    "lstm": lambda: ActorCritic(action_space=FOUR, use_lstm=True, lstm_size=6),
    "lstm apart": lambda: ActorCritic(action_space=FOUR, use_lstm=True, lstm_size=6, value_hiddens=[8]),
    "dilated lstm": lambda: ActorCritic(
        action_space=FOUR, use_lstm=True, lstm_size=6, lstm_type="Dilated", lstm_num_cores=3
    ),
    "no hidden layer": lambda: ActorCritic([], action_space=FOUR),
    "value": ValueFunction,
    "q": lambda: QFunction(action_space=4),
    "q, dueling, lstm": lambda: QFunction(action_space=4, dueling=True, use_lstm=True, lstm_size=6),
    "quantiles": lambda: QuantileQFunction(action_space=4, num_quantiles=7),
    "quantiles, dueling": lambda: QuantileQFunction(action_space=4, num_quantiles=7, dueling=True),
    "noisy": lambda: NoisyQFunction(action_space=4),
    "noisy, dueling": lambda: NoisyQFunction(action_space=4, dueling=True),
    "noisy quantiles, dueling": lambda: NoisyQuantileQFunction(action_space=4, num_quantiles=7, dueling=True),
    "deterministic": lambda: DeterministicActorCritic([32, 32], action_space=BOX),
    "deterministic, layer norm": lambda: DeterministicActorCritic([32, 32], action_space=BOX, layer_norm=True),
    "deterministic, rms norm": lambda: DeterministicActorCritic([32, 32], action_space=BOX, norm="rms"),
    "implicit": lambda: ImplicitActorCritic([32, 32], action_space=BOX),
    "batch norm": lambda: SoftActorCritic([32, 32], action_space=BOX, norm="batch"),
    "simba": lambda: SoftActorCritic([16, 16], action_space=BOX, blocks="simba"),
    "flashsac": lambda: DeterministicActorCritic([16, 16], action_space=BOX, blocks="flashsac"),
    "unit weights": lambda: SoftActorCritic([16, 16], action_space=BOX, norm="batch", unit_weights=True),
    "normalized": lambda: SoftActorCritic([32, 32], action_space=BOX, normalize_obs=True),
    "squashed normal": lambda: SoftActorCritic([32, 32], action_space=BOX),
    "soft categorical": lambda: DiscreteSoftActorCritic([32, 32], action_space=FOUR),
    "large": lambda: SoftActorCritic([256, 256], action_space=BOX),
    **{name: partial(QFunction, [9, 9], action_space=4, activation=name) for name in ACTIVATIONS if name != "gelu"},
}


def made(name: str, obs: Any = VECTOR) -> tuple[Model, NumpyPass]:
    torch.manual_seed(0)
    model = MODELS[name]()
    model.materialize(ObsSpec.from_obs(tree.take(obs, 0)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)  # such as zeros and ones are at first
        if model.obs_filter is not None:
            model.obs_filter.update(to_tensors(obs), torch.ones(ROWS, dtype=torch.bool))
    found = NumpyPass.of(model)
    assert found is not None
    return model, found


def compare(ours: Any, theirs: Any) -> None:
    """Compare outputs: arrays with tensors, or what agents ask of policies."""
    if isinstance(theirs, tuple):
        assert type(ours) is type(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            compare(mine, other)
    elif isinstance(theirs, Distribution):
        compare_policies(ours, theirs)
    else:
        assert (ours.dtype, ours.shape) == (np.float32, tuple(theirs.shape))
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def compare_policies(ours: NumpyPolicy, theirs: Distribution) -> None:
    np.testing.assert_allclose(ours.mode(), theirs.mode(), rtol=1e-5, atol=1e-5)
    actions = theirs.sample(torch.Generator().manual_seed(3))
    found = ours.sample(torch.Generator().manual_seed(3))
    np.testing.assert_allclose(found, actions, rtol=1e-5, atol=1e-5)
    assert (found.dtype, found.flags.c_contiguous) == (actions.numpy().dtype, True)
    try:
        compare(ours.log_probability(found), theirs.log_probability(actions))
    except ValueError:
        assert isinstance(MODELS["squashed normal"]().forward(to_tensors(VECTOR)), type(theirs))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_the_same(name: str) -> None:
    model, in_numpy = made(name)
    if isinstance(model, NoisyQFunction):
        model.draw_noise(torch.Generator().manual_seed(5))
    with torch.inference_mode():
        if model.state_shape is None:
            compare(in_numpy(VECTOR)[0], model(to_tensors(VECTOR)))
            return
        state = torch.randn(ROWS, *model.state_shape)
        output, after = in_numpy(VECTOR, state.numpy())
        compare((output, after), model(to_tensors(VECTOR), state))


@pytest.mark.parametrize("name", ["categorical", "filter", "lstm", "q", "squashed normal"])
def test_nested_observations_of_any_dtype_compute_the_same(name: str) -> None:
    model, in_numpy = made(name, NESTED)
    state = () if model.state_shape is None else (torch.randn(ROWS, *model.state_shape),)
    with torch.inference_mode():
        expected = model(to_tensors(NESTED), *state)
        output, after = in_numpy(NESTED, *(each.numpy() for each in state))
    compare((output, after) if state else output, expected)


@pytest.mark.parametrize(("name", "width"), [("categorical", 4), ("multi-discrete", 5), ("soft categorical", 4)])
def test_masked_policies_are_the_same(name: str, width: int) -> None:
    model, in_numpy = made(name)
    mask = torch.from_numpy(np.random.default_rng(2).random((ROWS, width)) < 0.7)
    mask[:, [0, -1]] = True
    with torch.inference_mode():
        theirs, ours = model(to_tensors(VECTOR)), in_numpy(VECTOR)[0]
    if isinstance(theirs, tuple):
        theirs, ours = theirs[0], ours[0]
    compare_policies(ours.masked(mask), theirs.masked(mask))


def test_an_action_mask_of_continuous_actions_is_an_error() -> None:
    (policy, _), _ = made("normal")[1](VECTOR)
    with pytest.raises(ValueError, match="action mask"):
        policy.masked(torch.ones(ROWS, 2, dtype=torch.bool))


def test_noise_that_is_off_is_not_computed() -> None:
    model, in_numpy = made("noisy")
    with torch.inference_mode():
        compare(in_numpy(VECTOR)[0], model(to_tensors(VECTOR)))


def test_parameters_that_change_in_place_are_seen() -> None:
    model, in_numpy = made("filter")
    other, _ = made("filter")
    with torch.no_grad():
        for tensor in other.tensors().values():
            tensor.add_(0.5)
    model.load_tensors(other.tensors(), version=2)
    assert in_numpy.is_current()
    with torch.inference_mode():
        compare(in_numpy(VECTOR)[0], other(to_tensors(VECTOR)))


@pytest.mark.parametrize("how", ["set", "moved", "shared"])
def test_parameters_that_are_replaced_are_noticed(how: str) -> None:
    model, in_numpy = made("q")
    if how == "set":
        model.q.output.weight = torch.nn.Parameter(torch.zeros(4, 64))  # type: ignore[union-attr]
    elif how == "moved":
        model.double()
    else:
        model.share_memory()
    assert not in_numpy.is_current()


class _OwnHead(torch.nn.Linear):
    """A user's own module."""


class _OwnModel(QFunction):
    """A user's own model, which may compute otherwise."""


def test_what_has_no_form_in_numpy_has_no_pass() -> None:
    spec, frames = ObsSpec.from_obs(VECTOR[0]), ObsSpec.from_obs(np.zeros((4, 84, 84), np.uint8))
    hooked, own = (QFunction(action_space=4, obs_spec=spec) for _ in range(2))
    hooked.q.register_forward_hook(lambda *_: None)
    own.q = _OwnHead(64, 4)
    for model in (
        hooked,
        own,
        _OwnModel(action_space=4, obs_spec=spec),
        QFunction(action_space=4, activation="kaf", obs_spec=spec),
        QFunction(action_space=4, obs_spec=spec).double(),
        QFunction(action_space=4, convolutions="nature", obs_spec=frames),
    ):
        assert NumpyPass.of(model) is None


def test_observations_of_another_shape_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"observations are \[8, 3\], but one of them is \[5\]"):
        made("q")[1](VECTOR[:, :3])
