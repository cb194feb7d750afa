"""Agents that learn by themselves: the order of their hooks over a pool of environments, against what each one saw."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from surreal.agent import AgentLoop, AgentSession, SessionAgent
from surreal.base.errors import ConfigError
from surreal.base.specs import ObsSpec
from surreal.distributed import remote
from surreal.envs import LocalEnvPool
from surreal.learner import RemoteLearner
from surreal.model import Model

SPACE = gymnasium.spaces.Discrete(3)


class Counting(gymnasium.Env[np.ndarray, int]):
    """Episodes of 3 steps; the n-th state of an environment is n. The second of each two is truncated."""

    observation_space = gymnasium.spaces.Box(0, 1e6, (1,), np.float32)
    action_space = SPACE

    def __init__(self) -> None:
        self.states = self.steps = self.episodes = 0

    def _state(self) -> np.ndarray:
        self.states += 1
        return np.array([self.states], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.steps, self.episodes = 0, self.episodes + 1
        return self._state(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        is_over = self.steps == 3
        state = self._state()
        return state, 10.0 * self.states, is_over and self.episodes % 2 == 1, is_over and self.episodes % 2 == 0, {}


class Shared(Model):
    def __init__(self) -> None:
        super().__init__()
        self.total = nn.Parameter(torch.zeros(()), requires_grad=False)
        self.part = Part()

    @remote
    def add(self, value: float) -> float:
        self.total += value
        return float(self.total)

    def forward(self, obs: Any) -> Any:
        return obs


class Part(nn.Module):
    @remote
    def double(self, value: float) -> float:
        return 2 * value


class Direct:
    """Calls the learner's methods in this process."""

    def __init__(self, learner: RemoteLearner) -> None:
        self.methods = learner.remote_methods()

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        return self.methods[method](*args, **options)


class Recorder(AgentSession):
    made: ClassVar[list[Recorder]] = []

    def __init__(self, parameter_server: Any) -> None:
        super().__init__(parameter_server)
        self.calls: list[Any] = []
        Recorder.made.append(self)

    def init(self, exploit: bool = False) -> bool:
        self.calls.append(("init", exploit))
        return True

    def update(self, reward: float | None, state: Any, terminal: bool) -> Any:
        self.calls.append((reward, float(state[0]), terminal))
        weight = torch.ones((), requires_grad=True)
        (weight * 3).backward()  # a session may compute gradients
        if reward is not None:
            self.metrics.scalar("game score", self.parameter_server.session.part.double(reward))
            self.parameter_server.session.add(reward)
        return None if terminal else int(state[0]) % 3

    def reset(self) -> None:
        self.calls.append("reset")


@pytest.fixture
def agent() -> SessionAgent:
    Recorder.made = []
    model = Shared()
    learner = RemoteLearner(model)
    spec = ObsSpec.from_space(Counting.observation_space)
    path = f"{__name__}.Recorder"
    return SessionAgent(model, session=path, server=Direct(learner), action_space=SPACE, obs_spec=spec)


def naive(turns: int) -> list[Any]:
    """What one session sees in a plain loop."""
    env, calls = Counting(), [("init", False)]
    state, reward, is_first = env.reset()[0], None, True
    for _ in range(turns):
        calls.append((None if is_first else reward, float(state[0]), False))
        state, reward, terminated, truncated, _ = env.step(0)
        is_first = terminated or truncated
        if terminated:
            calls.append((reward, float(state[0]), True))
        elif truncated:
            calls.append("reset")
        if is_first:
            state = env.reset()[0]
    return calls


def test_each_environment_has_its_session_which_sees_what_a_plain_loop_sees(agent: SessionAgent) -> None:
    with LocalEnvPool([Counting] * 2) as pool:
        loop = AgentLoop(pool, agent, None)
        while loop.env_steps < 28:
            loop.step()
    expected = naive(14)
    assert len(Recorder.made) == 2
    for session in Recorder.made:
        assert session.calls[: len(expected)] == expected
    rewards = [call[0] for session in Recorder.made for call in session.calls if isinstance(call[0], float)]
    assert float(agent.model.total) == sum(rewards)
    assert agent.metrics()["agent/game_score"] in [2 * reward for reward in rewards]


def test_methods_of_the_model_and_of_its_parts_can_be_called_and_no_others() -> None:
    assert set(RemoteLearner(Shared()).remote_methods()) == {"add", "part.double"}
    assert RemoteLearner(Shared()).learn(0, None) == {}


def test_a_session_without_a_learner_names_the_setting_that_helps() -> None:
    agent = SessionAgent(Shared(), session=f"{__name__}.Recorder", action_space=SPACE)
    view = agent._view
    with pytest.raises(ValueError, match=r"eval\.enabled: false"):
        view.session.add(1.0)


def test_a_class_that_is_no_session_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"agent\.args\.session"):
        SessionAgent(Shared(), session=f"{__name__}.Counting")
