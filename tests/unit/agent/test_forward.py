"""Acting in NumPy: who may, who decides, and that it acts and records as torch does."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import surreal.agent.forward
from surreal.agent import Acted, Agent, DeterministicAgent, NoisyQAgent, PolicyAgent, QAgent, SamplingAgent
from surreal.agent.forward import _REPETITIONS
from surreal.agent.sampler import Sampler
from surreal.base.specs import ObsSpec
from surreal.model import ActorCritic, DeterministicActorCritic, NoisyQFunction, QFunction, SoftActorCritic
from surreal.model.in_numpy import NumpyPass

ROWS = 6
SPEC = ObsSpec.from_obs(np.zeros(3, np.float32))
BOX = spaces.Box(-2.0, 2.0, (2,), np.float32)
FOUR = spaces.Discrete(4)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


AGENTS: Mapping[str, Callable[[], Agent]] = {
    "policy": lambda: PolicyAgent(ActorCritic(action_space=FOUR, obs_spec=SPEC, seed=0), rng=rng()),
    "recurrent": lambda: PolicyAgent(
        ActorCritic(action_space=FOUR, use_lstm=True, lstm_size=5, obs_spec=SPEC, seed=0), rng=rng()
    ),
    "normal": lambda: PolicyAgent(ActorCritic(action_space=BOX, obs_spec=SPEC, seed=0), rng=rng()),
    "correlated": lambda: PolicyAgent(
        ActorCritic(action_space=BOX, obs_spec=SPEC, seed=0), noise_correlation=0.8, rng=rng()
    ),
    "sac": lambda: SamplingAgent(
        SoftActorCritic([32], action_space=BOX, obs_spec=SPEC, seed=0), action_space=BOX, rng=rng()
    ),
    "td3": lambda: DeterministicAgent(
        DeterministicActorCritic([32], action_space=BOX, obs_spec=SPEC, seed=0), action_space=BOX, rng=rng()
    ),
    "parameter noise": lambda: DeterministicAgent(
        DeterministicActorCritic([32], action_space=BOX, obs_spec=SPEC, seed=0),
        action_space=BOX,
        noise="parameter",
        rng=rng(),
    ),
    "q": lambda: QAgent(QFunction(action_space=4, seed=0), 0.3, rng=rng(), obs_spec=SPEC),
    "recurrent q": lambda: QAgent(
        QFunction(action_space=4, use_lstm=True, lstm_size=5, obs_spec=SPEC, seed=0), 0.3, rng=rng()
    ),
    "noisy": lambda: NoisyQAgent(NoisyQFunction(action_space=4, obs_spec=SPEC, seed=0), rng=rng()),
}
MASKED = ("policy", "recurrent", "q")


@pytest.fixture(autouse=True)
def acts_in_torch() -> None:
    """Here, agents decide."""


@pytest.fixture
def numpy_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surreal.agent.forward, "_time_s", _times(numpy_s=1.0, torch_s=2.0))


def _times(*, numpy_s: float, torch_s: float) -> Callable[[Callable[[], object]], float]:
    """Return a clock by which the passes take these times: NumPy's is measured first, and both as often."""
    times = itertools.cycle([numpy_s] * _REPETITIONS + [torch_s] * _REPETITIONS)
    return lambda call: next(times)


def acts_in_numpy(agent: Agent) -> bool:
    assert agent._chosen_for is agent.model
    return agent._numpy is not None


def greedy_q() -> tuple[Agent, np.ndarray]:
    """Return an agent that has acted in NumPy, and observations."""
    agent = AGENTS["q"]()
    agent.set_mode("eval")
    obs = np.random.default_rng(2).normal(size=(64, 3)).astype(np.float32)
    agent.act(obs)
    assert acts_in_numpy(agent)
    return agent, obs


def turns(agent: Agent, *, masked: bool) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Act in several turns, whose rows differ in slots, exploration, masks and where episodes begin."""
    draws = np.random.default_rng(1)
    for turn in range(5):
        mask = draws.random((ROWS, 4)) < 0.6 if masked else None
        if mask is not None:
            mask[:, 1] = True
        obs = draws.normal(size=(ROWS, 3)).astype(np.float32)
        explore = np.ones(ROWS, np.bool_) if turn < 2 else draws.random(ROWS) < 0.5
        begins = np.ones(ROWS, np.bool_) if turn == 0 else draws.random(ROWS) < 0.3
        action = agent.act_batch(obs, explore, draws.permutation(ROWS), begins, mask)
        yield action.actions, dict(action.extras)


@pytest.mark.usefixtures("numpy_is_faster")
@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_acts_and_records_as_in_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = AGENTS[name]()
    ours = list(turns(agent, masked=name in MASKED))
    assert acts_in_numpy(agent)
    monkeypatch.setattr(NumpyPass, "of", lambda _: None)
    agent = AGENTS[name]()
    theirs = list(turns(agent, masked=name in MASKED))
    assert not acts_in_numpy(agent)
    for (our_actions, our_extras), (actions, extras) in zip(ours, theirs, strict=True):
        assert our_actions.dtype == actions.dtype
        np.testing.assert_allclose(our_actions, actions, rtol=1e-5, atol=1e-5)
        assert our_extras.keys() == extras.keys()
        for column, values in extras.items():
            assert our_extras[column].dtype == values.dtype
            np.testing.assert_allclose(our_extras[column], values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("numpy_s", "torch_s", "is_numpy"), [(1.0, 2.0, True), (2.0, 1.0, False)])
def test_the_faster_pass_of_the_first_batch_acts(
    numpy_s: float, torch_s: float, is_numpy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surreal.agent.forward, "_time_s", _times(numpy_s=numpy_s, torch_s=torch_s))
    agent = AGENTS["policy"]()
    list(turns(agent, masked=False))
    assert acts_in_numpy(agent) is is_numpy


@pytest.mark.usefixtures("numpy_is_faster")
def test_torch_acts_where_its_deterministic_algorithms_are_switched_on() -> None:
    agent = AGENTS["policy"]()
    torch.set_deterministic_debug_mode("error")
    try:
        list(turns(agent, masked=False))
    finally:
        torch.set_deterministic_debug_mode("default")
    assert not acts_in_numpy(agent)


class _OwnAct(QAgent):
    def _act(self, obs: Any, explore: Any, context: Any) -> Any:
        q, extras = self.compute(obs, context)
        return Acted(q.argmax(dim=1), extras)


class _OwnCompute(QAgent):
    def compute(self, obs: Any, context: Any) -> Any:
        q, extras = super().compute(obs, context)
        return q.clamp(min=0.0), extras


class _OwnSampler(Sampler):
    def choose(self, policy: Any, *_: Any) -> Any:
        return policy.logits.argmax(dim=1)


def _own_sampler() -> Agent:
    agent = PolicyAgent(ActorCritic(action_space=FOUR, obs_spec=SPEC))
    agent.sampler = _OwnSampler(rng())
    return agent


@pytest.mark.usefixtures("numpy_is_faster")
@pytest.mark.parametrize(
    "make",
    [
        lambda: _OwnAct(QFunction(action_space=4, obs_spec=SPEC)),
        lambda: _OwnCompute(QFunction(action_space=4, obs_spec=SPEC)),
        _own_sampler,
    ],
)
def test_code_of_a_user_gets_tensors(make: Callable[[], Agent]) -> None:
    agent = make()
    list(turns(agent, masked=False))
    assert not acts_in_numpy(agent)


@pytest.mark.usefixtures("numpy_is_faster")
def test_parameters_that_are_loaded_act_in_numpy() -> None:
    agent, obs = greedy_q()
    other = QFunction(action_space=4, obs_spec=SPEC, seed=1)
    agent.model.load_tensors(other.tensors(), version=1)
    np.testing.assert_array_equal(agent.act(obs), other(torch.from_numpy(obs)).argmax(1))
    assert acts_in_numpy(agent)


def _assign(agent: Agent, other: QFunction) -> None:
    agent.model.load_state_dict(other.state_dict(), assign=True)


def _swap(agent: Agent, other: QFunction) -> None:
    agent.model.load_tensors(other.tensors(), in_place=False)


def _move(agent: Agent, other: QFunction) -> None:
    agent.model.load_tensors(other.tensors())
    agent.model.double().float()


def _exchange(agent: Agent, other: QFunction) -> None:
    agent.model = other


@pytest.mark.usefixtures("numpy_is_faster")
@pytest.mark.parametrize("replace", [_assign, _swap, _move, _exchange])
def test_parameters_that_are_replaced_act_in_numpy(replace: Callable[[Agent, QFunction], None]) -> None:
    agent, obs = greedy_q()
    other = QFunction(action_space=4, obs_spec=SPEC, seed=1)
    replace(agent, other)
    np.testing.assert_array_equal(agent.act(obs), other(torch.from_numpy(obs)).argmax(1))
    assert acts_in_numpy(agent)


@pytest.mark.usefixtures("numpy_is_faster")
def test_parameters_of_empty_observations_are_replaced() -> None:
    space, empty = spaces.Discrete(64), ObsSpec.from_obs(np.zeros(0, np.float32))
    first, other = (ActorCritic((8,), action_space=space, obs_spec=empty, seed=seed) for seed in (0, 1))
    for parameter in itertools.chain(first.parameters(), other.parameters()):
        torch.nn.init.normal_(parameter)
    agents, obs = [PolicyAgent(first), PolicyAgent(other)], np.zeros((1, 0), np.float32)
    for agent in agents:
        agent.set_mode("eval")
    before, after = (agent.act(obs) for agent in agents)
    first.load_tensors({name: each.clone() for name, each in other.tensors().items()}, in_place=False)
    assert agents[0].act(obs) == after != before
    assert acts_in_numpy(agents[0])


@pytest.mark.usefixtures("numpy_is_faster")
def test_a_copy_of_an_agent_acts_with_its_own_parameters() -> None:
    agent, obs = greedy_q()
    before = agent.act(obs)
    copied = copy.deepcopy(agent)
    with torch.no_grad():
        for parameter in agent.model.parameters():
            parameter.neg_()
    np.testing.assert_array_equal(copied.act(obs), before)
    assert (agent.act(obs) != before).any()
