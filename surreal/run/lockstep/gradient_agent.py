"""Agents that compute gradients (`learner.gradients: agents`): acting and the run's own learner in one process.

An agent acts with the newest parameters until its round, or chunk, is in its own replay, which lies in its memory. Then
its learner does all updates that this allows, on a model that both share; but its gradients go to the parameter
servers, which step, and their parameters are loaded between two updates.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

import numpy as np

from surreal.agent.loop import EpisodeCallback
from surreal.base.errors import StoppedError
from surreal.base.metrics import RateMeter, Reading
from surreal.base.system.threads import Supervisor
from surreal.config import Config
from surreal.distributed.experience.local import LocalShards
from surreal.distributed.gradients.sender import GradientSender
from surreal.envs import EnvPool
from surreal.learner import GradientLearner
from surreal.replay import Replay
from surreal.run.build.learning import build_gradient_learner, build_gradient_sender, build_replay
from surreal.run.build.lockstep import gradients_config
from surreal.run.lockstep.actor import Actor
from surreal.run.lockstep.gradient_buffer import GradientBuffer, WaitLimits
from surreal.run.process.role import RoleProcess
from surreal.run.session.acting import AgentWaits
from surreal.run.session.intake import SteppedIntake

logger = logging.getLogger(__name__)

#: Time of one look for the first parameters, s.
_FIRST_PARAMETERS_S = 1.0
_CHECK_INTERVAL_S = 0.1
#: An agent ends with its turn, s.
_JOIN_TIMEOUT_S = 5.0
#: Gradients that may be on their way where each is a step: the servers work on one while the agent acts.
_AHEAD = 1


class GradientAgent:
    """One agent: environments, replay, learner.

    It begins with the servers' first parameters, for which it waits: a gradient is of a version, and target networks
    begin as copies of what is known by then.

    Args:
        on_episode: called with return, length and environment of each episode, on the agent's thread.
        pool: pool of sessions; None: the configuration's environments.
    """

    def __init__(
        self,
        process: RoleProcess,
        config: Config,
        stack: ExitStack,
        index: int,
        on_episode: EpisodeCallback,
        threads: Supervisor,
        pool: EnvPool | None = None,
    ) -> None:
        self._process = process
        self._threads = threads
        self._shards = stack.enter_context(closing(LocalShards(process.client.run)))
        self._actor = Actor(process, config, stack, index, on_episode, shards=self._shards, pool=pool)
        self._seed = int(np.random.SeedSequence(config.seed, spawn_key=(index,)).generate_state(1)[0] >> 1)
        self._replay: Replay[Any] = build_replay(config, self._shards, seed=self._seed)
        stack.callback(self._replay.join)
        stack.callback(self._replay.stop)
        self._intake = SteppedIntake(self._replay)
        # Noise and the order of minibatches are each agent's own; the model exists already, and all agents share it.
        own = config.model_copy(update={"seed": self._seed})
        self._learner: GradientLearner = build_gradient_learner(own, self._actor.model, self._replay)
        self._batches = 0
        while not self._actor.listener.wait_for_first(_FIRST_PARAMETERS_S, process.stop):
            if process.should_stop():
                raise StoppedError("stopped while waiting for parameters")
        self._learner.become_ready()
        sender: GradientSender = build_gradient_sender(process.config, process.replay, self._learner)
        self._sender = stack.enter_context(closing(sender))
        self.loop, self.listener = self._actor.loop, self._actor.listener
        self.buffer = GradientBuffer(
            self._learner,
            sender,
            self.listener,
            waiting=wait_limits(config),
            counts=lambda: (self.loop.env_steps, self.loop.episodes),
            stop=process.stop,
            check_stop=self._check_stop,
        )

    @property
    def waited_s(self) -> float:
        """Wait for space in the servers' queues, and for parameters that include its pushed gradients."""
        sent, buffered = self._sender.metrics(), self.buffer.metrics()
        return sent["gradients/wait_s_total"] + buffered["agent/gradient_wait_s_total"]

    def turn(self) -> None:
        """Act, and compute the gradients that this allows; a thread's body."""
        self._actor.act(self._check_stop)
        self._intake.take_in()
        while (batch := self._intake.next_batch()) is not None:
            self._check_stop()
            self._learner.optimize(self._batches, batch)
            self._batches += 1
            self.buffer.finish_update()
            self._shards.local.run_steps = self.buffer.global_step
            self._replay.commit(self._learner.version)

    def metrics(self) -> dict[str, float]:
        sources = (
            *(self._learner.metrics, self._replay.metrics, self._sender.metrics, self.buffer.metrics),
            *(self.loop.metrics, self._actor.pool.metrics, self.listener.metrics),
        )
        return {name: value for source in sources for name, value in source().items()}

    def take_readings(self) -> list[Reading]:
        """Take the metrics of the updates since the last call."""
        return self._learner.readings.take()

    def _check_stop(self) -> None:
        """On the agent's thread, whose turns say nothing of the main one's."""
        self._threads.turn()
        if self._process.stop.is_set():
            raise StoppedError("stopped between two updates")


class GradientSession:
    """The agents of one process, each on its own thread; with a `pool` of sessions, one agent that plays it."""

    def __init__(self, process: RoleProcess, stack: ExitStack, pool: EnvPool | None = None) -> None:
        config = gradients_config(process.config)
        number = config.agent.per_process if pool is None else 1
        first = process.index * number
        self._process = process
        self._limit = config.run.max_env_steps
        self._episode_lock = threading.Lock()
        self._threads = Supervisor("agents")
        self._parts = ExitStack()
        stack.callback(self._close)
        self._agents = [
            GradientAgent(process, config, self._parts, first + place, self._add_episode, self._threads, pool)
            for place in range(number)
        ]
        self._rate = RateMeter("agent/env_steps_per_s")
        telemetry = process.telemetry
        telemetry.add_source(self._agents[0].metrics)
        telemetry.add_readings(self._agents[0].take_readings)
        telemetry.add_source(self._metrics)  # wins over the first agent's own
        telemetry.add_source(AgentWaits(lambda: sum(agent.waited_s for agent in self._agents) / number).metrics)
        telemetry.watch(version=lambda: self._agents[0].listener.version, global_step=lambda: self.global_step)

    @property
    def global_step(self) -> int:
        return max(agent.buffer.global_step for agent in self._agents)

    @property
    def env_steps(self) -> int:
        return sum(agent.loop.env_steps for agent in self._agents)

    @property
    def episodes(self) -> int:
        return sum(agent.loop.episodes for agent in self._agents)

    def run(self, *checks: Callable[[], object]) -> None:
        """Act and compute until the run ends, has its env steps, or one of the `checks` called now and then raises."""
        for place, agent in enumerate(self._agents):
            self._threads.spawn(str(place), agent.turn)
        self._process.startup.mark_restored()
        while not self._process.should_stop() and self._threads.is_running:
            if self.env_steps:
                self._process.startup.mark_first_step()
            if self._limit is not None and self.global_step >= self._limit:
                logger.info("the run has its %d env steps", self._limit)
                break
            for check in checks:
                check()
            self._process.stop.wait(_CHECK_INTERVAL_S)
        self._threads.stop()
        self._threads.join(_JOIN_TIMEOUT_S)
        self._threads.check_errors()

    def status(self) -> dict[str, Any]:
        """Explain which run this is, and which parameters act; from any thread."""
        return {"run": self._process.client.run, "version": self._agents[0].listener.version, "exploration": None}

    def _close(self) -> None:
        """Close the agents' resources, unless a thread still uses them; then they end with the process."""
        self._threads.stop()
        if self._threads.join(_JOIN_TIMEOUT_S):
            self._parts.close()

    def _add_episode(self, episode_return: float, length: int, env_id: int) -> None:
        with self._episode_lock:
            self._process.telemetry.episode(episode_return, length, env_id)
            self._process.callbacks.on_episode(episode_return, length)

    def _metrics(self) -> dict[str, float]:
        self._rate.total = self.env_steps
        totals = {"agent/env_steps_total": self.env_steps, "agent/episodes_total": self.episodes}
        return {**self._rate.metrics(), **{name: float(total) for name, total in totals.items()}}


def wait_limits(config: Config) -> WaitLimits:
    """Return when agents wait for the parameters that their gradients led to.

    Where a mean is taken, each gives its part of it first: with fewer agents, several gradients of one version.
    """
    learner = config.learner
    if learner.combine_gradients == "avg":
        part = math.ceil(learner.num_gradients / config.num_agents)
        return WaitLimits(part - 1, learner.num_gradients - 1, learner.gradients_timeout_s)
    return WaitLimits(_AHEAD, _AHEAD, learner.gradients_timeout_s)
