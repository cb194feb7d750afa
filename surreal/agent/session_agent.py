"""`SessionAgent`: drives agents that learn by themselves, one for each environment, by the hooks that RELAAX has.

    # algorithm/agent.py
    from surreal.agent import AgentSession

    class Agent(AgentSession):
        def update(self, reward, state, terminal):
            if reward is not None:
                self.parameter_server.session.add_reward(reward)
            return None if terminal else 0

In app.yaml, `agent: {class: surreal.agent.SessionAgent, args: {session: algorithm.agent.Agent}}`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from surreal.agent.base import ActContext, Agent
from surreal.base import tree
from surreal.base.pytorch import Module
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs, StepBatch
from surreal.config.classes import import_class


class AgentSession(ABC):
    """Base of an agent that gets rewards and ends of episodes, and learns by itself; one for each environment.

    The calling loop, for each environment:

        session = MySession(parameter_server)
        session.init(exploit)
        action = session.update(None, state, False)             # the first state of an episode
        action = session.update(reward, state, False)           # each further one
        session.update(reward, state, True)                     # the terminal one; what it returns is ignored
        session.reset()                                         # the episode was cut off before a terminal state

    All of it runs on the acting thread; gradients are enabled.

    Args:
        parameter_server: calls methods of the learner's model by name, `parameter_server.session.NAME(...)`.
    """

    metrics: Metrics  #: `metrics.scalar(name, y)` reports a number, as `agent/NAME`

    def __init__(self, parameter_server: ParameterServerView) -> None:
        self.parameter_server = parameter_server

    def init(self, exploit: bool = False) -> bool:
        """Prepare for episodes.

        Args:
            exploit: act as well as possible and learn nothing.

        Returns:
            Whether the session is ready; False ends the run.
        """
        return True

    @abstractmethod
    def update(self, reward: float | None, state: Any, terminal: bool) -> Any:
        """Take the result of the last action, and choose the next one.

        Args:
            reward: reward of the last action; None in the first state of an episode.
            state: [*obs_shape] array, or nested dicts and tuples of them; a copy.
            terminal: whether the episode ends here.

        Returns:
            The action; None after a terminal state.
        """

    def reset(self) -> None:
        """Forget the episode, which was cut off."""


class Metrics:
    """Numbers that a session reports: the newest value of each name."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}

    def scalar(self, name: str, y: float, x: int | None = None) -> None:
        """Report a number; `x`, the step, is the run's own."""
        self.values[f"agent/{name.replace(' ', '_')}"] = float(y)

    def histogram(self, name: str, y: Any, x: int | None = None) -> None:
        """Report the mean of an array."""
        self.scalar(name, float(np.mean(np.asarray(y, np.float64))), x)


class RemoteSession:
    """Methods of the learner's model: `session.NAME(...)`, and `session.policy.NAME(...)` of a part of it."""

    def __init__(self, call: Callable[..., Any], prefix: str = "") -> None:
        self._call, self._prefix = call, prefix

    def __getattr__(self, name: str) -> RemoteSession:
        if name.startswith("_"):
            raise AttributeError(name)
        return RemoteSession(self._call, f"{self._prefix}.{name}" if self._prefix else name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the method; raises as `surreal.distributed.RemoteServer.call` does."""
        return self._call(self._prefix, *args, **options)


class ParameterServerView:
    """The learner, as a session sees it."""

    def __init__(self, agent: Agent, server: Any) -> None:
        self.model = agent.model  #: this process's copy of that model, whose parameters follow the learner's
        self._agent, self._server = agent, server
        self.session = RemoteSession(self._call)  #: calls methods of the learner's model

    def n_step(self) -> int:
        """Env steps of the whole run, as last heard."""
        return self._agent.env_step

    def _call(self, method: str, *args: Any, **options: Any) -> Any:
        if self._server is None:
            problem = f"{method} needs a learner to call: a SessionAgent acts in the agents of a run alone"
            raise ValueError(f"{problem}; set eval.enabled: false and run.deterministic: false")
        return self._server.call(method, *args, **options)


class SessionAgent(Agent):
    """Acts through an `AgentSession` for each environment, which receives rewards and ends of episodes.

    Args:
        model: the learner's model, whose parameters follow it.
        session: import path of the class.
        server: calls methods of the learner; None outside of a run.
        action_space: action space of the environment.
        obs_spec: kind of one observation.
    """

    wants_outcomes = True

    def __init__(
        self,
        model: Module,
        *,
        session: str,
        server: Any = None,
        action_space: gymnasium.Space[Any] | None = None,
        obs_spec: ObsSpec | None = None,
    ) -> None:
        super().__init__(model, obs_spec=obs_spec)
        self._class: type[AgentSession] = import_class(session, AgentSession, key="agent.args.session")
        self._view = ParameterServerView(self, server)
        self._metrics = Metrics()
        self._action_space = action_space
        self._sessions: dict[int, tuple[AgentSession, bool]] = {}  # by slot; and whether it exploits
        self._rewards: dict[int, float] = {}  # of steps whose next state has not been shown yet

    def observe(self, batch: StepBatch) -> None:
        """Report ends of episodes to the sessions, and keep the rewards of steps whose next state acts."""
        for row in range(batch.num_last):
            slot = int(batch.env_ids[row])
            if slot not in self._sessions:
                continue
            session, _ = self._sessions[slot]
            self._rewards.pop(slot, None)
            if batch.terminated[row]:
                state = tree.map_leaves(lambda leaf: np.array(leaf[row]), batch.obs)  # noqa: B023 - called at once
                with self.model.lock, torch.inference_mode(False), torch.enable_grad():  # as in `_act`
                    session.update(float(batch.reward[row]), state, True)
            else:
                session.reset()
        for row in range(batch.num_last, len(batch.env_ids)):
            self._rewards[int(batch.env_ids[row])] = float(batch.reward[row])
        for slot in batch.closed_ids.tolist():
            if slot in self._sessions:
                self._sessions.pop(slot)[0].reset()

    def metrics(self) -> dict[str, float]:
        return dict(self._metrics.values)

    def _act(self, obs: Obs, explore: NDArray[np.bool_], context: ActContext) -> Any:
        arrays = tree.map_leaves(lambda leaf: leaf.cpu().numpy(), obs)
        actions = []
        with torch.inference_mode(False), torch.enable_grad():  # a session may learn in here
            for row, slot in enumerate(context.slots.tolist()):
                session = self._session_of(slot, exploit=not explore[row])
                state = tree.map_leaves(lambda leaf: leaf[row].copy(), arrays)  # noqa: B023 - called at once
                reward = self._rewards.pop(slot, 0.0)
                action = session.update(None if context.is_first[row] else reward, state, False)
                if action is None:
                    raise ValueError(f"{self._class.__qualname__}.update returned None; it must return an action")
                actions.append(action)
        dtype = None if self._action_space is None else self._action_space.dtype
        return np.asarray(actions, dtype)

    def _session_of(self, slot: int, *, exploit: bool) -> AgentSession:
        known = self._sessions.get(slot)
        if known is not None and known[1] == exploit:
            return known[0]
        session = self._class(self._view) if known is None else known[0]
        session.metrics = self._metrics
        if session.init(exploit) is False:
            raise ValueError(f"{self._class.__qualname__}.init returned False: it is not ready")
        self._sessions[slot] = session, exploit
        return session
