"""torch.compile as an option: the same updates, and one warning where it fails."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.base.specs import ObsSpec
from surreal.learner import A2CLearner, DDPGLearner, DQNLearner, GradientLearner, PPOLearner, SACLearner, TRPOLearner
from surreal.model import DeterministicActorCritic, QFunction, SoftActorCritic
from tests.unit.learner.on_policy.conftest import make_model, play

if TYPE_CHECKING:
    from surreal.base.types import Batch
    from tests.unit.learner.conftest import MakeBatch
    from tests.unit.learner.on_policy.conftest import MakeModel, Play

__all__ = ["make_model", "play"]

OBS = ObsSpec.from_obs(np.zeros(4, np.float32))
SPACE = spaces.Box(-1.0, 1.0, (2,))
LEARNERS: dict[str, Callable[..., GradientLearner]] = {
    "dqn": lambda **options: DQNLearner(QFunction([8], action_space=2, obs_spec=OBS, seed=0), **options),
    "ddpg": lambda **options: DDPGLearner(
        DeterministicActorCritic([8], action_space=SPACE, obs_spec=OBS, seed=0), **options
    ),
    "sac": lambda **options: SACLearner(SoftActorCritic([8], action_space=SPACE, obs_spec=OBS, seed=0), **options),
}


def raising(*_: Any, **__: Any) -> Any:
    raise RuntimeError("no compiler\nand a long story")


def raising_later(*_: Any, **__: Any) -> Any:
    return raising


@pytest.fixture
def batches(make_batch: MakeBatch) -> Callable[[str], list[Batch]]:
    def make(name: str) -> list[Batch]:
        made = [make_batch(seed) for seed in range(3)]
        if name == "dqn":
            return made
        return [batch._replace(action=torch.rand(16, 2) * 2.0 - 1.0) for batch in made]

    return make


@pytest.mark.parametrize("compiler", [raising, raising_later])
@pytest.mark.parametrize("name", LEARNERS)
def test_where_the_compiler_raises_one_warning_says_so_and_learning_goes_on(
    name: str,
    compiler: Callable[..., Any],
    batches: Callable[[str], list[Batch]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    torch.manual_seed(0)
    given = batches(name)
    plain = LEARNERS[name]()
    for i, batch in enumerate(given):
        plain.optimize(i, batch)
    monkeypatch.setattr(torch, "compile", compiler)
    learner = LEARNERS[name](compile=True)
    with caplog.at_level(logging.WARNING):
        for i, batch in enumerate(given):
            learner.optimize(i, batch)
    assert [record.message for record in caplog.records] == [
        "torch.compile fails here, and learning continues without it: RuntimeError: no compiler"
    ]
    for key, tensor in plain.state_dict()["tensors"].items():
        assert torch.equal(tensor, learner.state_dict()["tensors"][key]), key


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", LEARNERS)
def test_compiled_updates_are_those_that_are_not(
    name: str,
    batches: Callable[[str], list[Batch]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By the part of the compiler that needs no C++: it traces, and differentiates what it traced."""
    counted = count_compiled_calls(monkeypatch)
    torch.manual_seed(0)
    given = batches(name)
    learners = [LEARNERS[name](compile=is_compiled) for is_compiled in (False, True)]
    for i, batch in enumerate(given):
        for learner in learners:
            learner.optimize(i, batch)
    assert not [record for record in caplog.records if "torch.compile fails" in record.message]
    assert counted[0] >= 2 * len(given)
    plain, compiled = (learner.state_dict()["tensors"] for learner in learners)
    assert plain.keys() == compiled.keys()
    for key, tensor in plain.items():
        torch.testing.assert_close(compiled[key], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("make", "use_lstm"), [(A2CLearner, False), (PPOLearner, True)])
def test_compiled_policies_learn_the_same(
    make: Any,
    use_lstm: bool,
    make_model: MakeModel,
    play: Play,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted = count_compiled_calls(monkeypatch)
    tensors = []
    for is_compiled in (False, True):
        model = make_model(use_lstm=use_lstm, lstm_size=4, normalize_obs=True)
        learner = make(model, compile=is_compiled)
        learner.optimize(0, play(model, rows=4, columns=4))
        tensors.append(learner.state_dict()["tensors"])
    assert not [record for record in caplog.records if "torch.compile fails" in record.message]
    assert counted[0] > 0
    for key, tensor in tensors[0].items():
        torch.testing.assert_close(tensors[1][key], tensor, rtol=1e-3, atol=1e-5)


def test_a_copy_of_a_compiled_network_computes_with_its_own_parameters(
    batches: Callable[[str], list[Batch]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function: function)
    (batch, *_) = batches("dqn")
    learner = LEARNERS["dqn"](compile=True)
    learner.optimize(0, batch)
    twin = copy.deepcopy(learner.model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
        assert not twin(batch.obs).any()
        assert learner.model(batch.obs).any()


def test_second_derivatives_of_compiled_networks_are_refused(make_model: MakeModel) -> None:
    with pytest.raises(ValueError, match="set subtype to trpo-d1"):
        TRPOLearner(make_model(value_hiddens=[4]), compile=True)


def count_compiled_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have networks compiled without inductor, and count their calls."""
    count, real = [0], partial(torch.compile, backend="aot_eager")

    def compiling(function: Any) -> Any:
        compiled = real(function)

        def call(*args: Any, **kwargs: Any) -> Any:
            count[0] += 1
            return compiled(*args, **kwargs)

        return call

    monkeypatch.setattr(torch, "compile", compiling)
    return count
