"""The Q network: shapes, when its parameters are made, and what it reads of an observation."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.base.errors import ContractError
from surreal.base.specs import ObsSpec
from surreal.model import QFunction

BOX = ObsSpec.from_obs(np.zeros(4, dtype=np.float32))


def test_first_batch_makes_the_parameters() -> None:
    model = QFunction(hiddens=[64, 32], action_space=6)
    assert not model.is_materialized
    with pytest.raises(ValueError, match="no parameters yet"):
        model.parameter_contract()
    with torch.inference_mode():
        assert model(torch.zeros(5, 4)).shape == (5, 6)
    assert model.is_materialized
    assert [entry["shape"] for entry in model.parameter_contract().values()] == [
        [64, 4],
        [64],
        [32, 64],
        [32],
        [6, 32],
        [6],
    ]
    model(torch.ones(2, 4)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_loaded_parameters_make_the_parameters() -> None:
    theirs = QFunction(hiddens=[8], action_space=2, obs_spec=BOX)
    ours = QFunction(hiddens=[8], action_space=2)
    ours.load_tensors(theirs.tensors(), version=3, header=theirs.header())
    assert ours.version == 3
    obs = torch.randn(7, 4)
    assert torch.equal(ours(obs), theirs(obs))


def test_parameters_that_do_not_fit_make_nothing() -> None:
    ours = QFunction(hiddens=[8], action_space=2)
    theirs = QFunction(hiddens=[9], action_space=2, obs_spec=ObsSpec.from_obs(np.zeros(5)))
    with pytest.raises(ContractError, match=r"float32\[9, 5\] -> float32\[8, 5\]"):
        ours.load_tensors(theirs.tensors(), header=theirs.header())
    assert not ours.is_materialized
    for header, problem in (({}, "say nothing of observations"), ({"obs": {"leaves": [{}]}}, "for other observations")):
        with pytest.raises(ContractError, match=problem):
            ours.load_tensors(theirs.tensors(), header=header)
    assert ours(torch.zeros(1, 4)).shape == (1, 2)


def test_many_threads_make_the_parameters_once() -> None:
    model = QFunction(hiddens=[8], action_space=2)
    start = threading.Barrier(4)
    outputs: list[torch.Tensor] = []

    def compute() -> None:
        start.wait(60.0)
        outputs.append(model(torch.ones(1, 4)).detach())

    threads = [threading.Thread(target=compute) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert len(outputs) == 4
    assert all(torch.equal(output, outputs[0]) for output in outputs)


def test_a_seed_gives_the_same_parameters_whenever_they_are_made() -> None:
    now = QFunction(hiddens=[8], action_space=2, obs_spec=BOX, seed=5)
    later = QFunction(hiddens=[8], action_space=2, seed=5)
    torch.manual_seed(1234)
    obs = torch.randn(3, 4)
    assert torch.equal(now(obs), later(obs))
    assert not torch.equal(now(obs), QFunction(hiddens=[8], action_space=2, seed=6)(obs))


def test_initial_values_are_those_of_torch() -> None:
    weight = QFunction(hiddens=[500], action_space=2, obs_spec=BOX, seed=0).tensors()["torso.dense.layers.0.weight"]
    assert weight.abs().max() <= 0.5
    # 2,000 uniform values: the mean's standard deviation is 0.0065.
    assert abs(float(weight.mean())) < 0.03
    assert float(weight.abs().max()) > 0.49


def test_dueling_values_are_value_plus_centred_advantage() -> None:
    model = QFunction(hiddens=[8], action_space=3, dueling=True, obs_spec=BOX, seed=0)
    obs = torch.randn(6, 4)
    raw = model.q.output(model.torso(obs))
    expected = torch.stack([raw[:, 0] + raw[:, 1 + a] - raw[:, 1:].sum(dim=1) / 3 for a in range(3)], dim=1)
    torch.testing.assert_close(model(obs), expected)
    # The mean over the actions is the state's value.
    torch.testing.assert_close(model(obs).mean(dim=1), raw[:, 0])


def test_nested_observations_are_concatenated_by_sorted_keys() -> None:
    space = spaces.Dict(
        {"b": spaces.Box(-1, 1, (2,)), "a": spaces.Tuple((spaces.Box(0, 255, (2, 2), np.uint8), spaces.Discrete(5)))}
    )
    model = QFunction(hiddens=[], action_space=2, obs_spec=ObsSpec.from_space(space), seed=0)
    image = torch.tensor([[[0, 255], [51, 102]]], dtype=torch.uint8)
    obs = {"b": torch.tensor([[0.5, -0.5]]), "a": (image, torch.tensor([3]))}
    flat = torch.tensor([[0.0, 1.0, 0.2, 0.4, 3.0, 0.5, -0.5]])
    torch.testing.assert_close(model(obs), model.q(flat))


def test_a_copy_computes_with_its_own_parameters() -> None:
    model = QFunction(hiddens=[8], action_space=2, obs_spec=BOX, seed=0)
    twin, obs = copy.deepcopy(model), torch.randn(3, 4)
    before = model(obs).detach()
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1.0)
    assert torch.equal(model(obs), before)
    assert not torch.equal(twin(obs), before)


def test_replaced_parameters_are_used() -> None:
    model = QFunction(hiddens=[8], action_space=2, obs_spec=BOX, seed=0)
    other = QFunction(hiddens=[8], action_space=2, obs_spec=BOX, seed=1)
    obs = torch.randn(3, 4)
    swapped = torch.func.functional_call(model, other.tensors(), (obs,))
    assert torch.equal(swapped, other(obs))
    model.load_state_dict(other.state_dict(), assign=True)
    assert torch.equal(model(obs), other(obs))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"action_space": 0}, "must be >= 1"),
        ({"action_space": 2.5}, "number of actions"),
        ({"action_space": spaces.Discrete(3, start=1)}, "must start at 0"),
        ({"action_space": 2, "hiddens": [8, 0]}, r"hiddens is \[8, 0\]; each must be >= 1"),
        ({"action_space": 2, "activation": "rely"}, "did you mean relu"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QFunction(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("space", [np.int64(3), spaces.Discrete(3)])
def test_action_space_may_be_a_number_or_a_space(space: int | spaces.Discrete) -> None:
    assert QFunction(action_space=space).num_actions == 3
