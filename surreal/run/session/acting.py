"""Acting in a run: what an agent and an RLX server share. They differ in where their environments are."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, Literal

import numpy as np

from surreal.agent import Agent, AgentLoop, Rounds
from surreal.agent.exported import ExportedAgent
from surreal.base.contracts import StepSender
from surreal.base.errors import CheckpointError, ContractError
from surreal.base.metrics import RateMeter
from surreal.base.system.logs import WaitNotice
from surreal.config import Config
from surreal.distributed.experience.sender import ExpSender
from surreal.distributed.parameters.listener import TorchListener
from surreal.envs import EnvPool
from surreal.run.build import acting
from surreal.run.build.environments import Spaces
from surreal.run.build.saved_policy import SavedPolicy
from surreal.run.process.progress import read_learned, read_progress
from surreal.run.process.role import RoleProcess
from surreal.run.session.intake import WINDOW_S

logger = logging.getLogger(__name__)

#: How long to wait for the first parameters before acting without, s: a learner may be started later.
_FIRST_PARAMETERS_S = 5.0


class ActingSession:
    """Model, agent, listener, sender and the loop that connects them; the parameters have come, or are late.

        session = ActingSession(process, stack, pool, spaces)
        session.run()

    Args:
        is_greedy: act as well as the agent can, and record nothing.
        on_full: what to do with experience that a full replay does not take; None: as `sender.on_full` says.
        rounds: has the agent wait for parameters that learned from what it sent; None never waits.
        around_sender: makes what the loop sends to, which sends on to the given one; None: that one.
    """

    def __init__(
        self,
        process: RoleProcess,
        stack: ExitStack,
        pool: EnvPool,
        spaces: Spaces,
        *,
        is_greedy: bool = False,
        on_full: Literal["wait", "drop"] | None = None,
        rounds: Rounds | None = None,
        around_sender: Callable[[StepSender], StepSender] | None = None,
    ) -> None:
        config, telemetry = process.config, process.telemetry
        self._process = process
        self._pool = pool
        model = acting.build_acting_model(config, spaces)
        acting.restore_model(config, model)
        agent: Agent
        if is_greedy:
            agent = acting.build_greedy_agent(config, model, spaces, rng=process.rng())
        else:
            server = acting.build_remote_server(config, process.parameter_client, process.stop)
            agent = acting.build_agent(config, model, spaces, index=process.index, rng=process.rng(), server=server)
        self._agent = stack.enter_context(closing(agent))
        listener = acting.build_listener(config, process.parameter_client, model, keeps_time=pool.keeps_time)
        self._listener = listener
        stack.callback(listener.close)
        listener.run_listener_thread()
        while not listener.wait_for_first(_FIRST_PARAMETERS_S, process.stop):
            if process.stop.is_set() or not listener.is_published():
                logger.info("no parameters yet; acting without")
                break
        self.sender: ExpSender | None = None
        if spaces.obs_spec is None:
            logger.warning("env.observation_space is raw: states go to the agent as they come, nothing is recorded")
        elif not is_greedy:
            sender = acting.build_sender(
                config, process.replay, pool, process.stop, index=process.index, on_full=on_full
            )
            stack.push(partial(self._end_sender, sender))
            telemetry.add_source(sender.metrics)
            telemetry.watch(global_step=lambda: sender.global_step)
            self.sender = sender
        self.loop = AgentLoop(
            pool,
            agent,
            self.sender if around_sender is None or self.sender is None else around_sender(self.sender),
            on_episode=self._on_episode,
            rounds=rounds,
            interventions=config.env.has_interventions,
            gamma=config.learner.gamma,
        )
        if rounds is not None and self.sender is not None:
            rounds.parameters = ListenedParameters(listener)
            listener.hold()
        self._rate = RateMeter("agent/env_steps_per_s")
        self._rounds = rounds
        if self.sender is not None:
            telemetry.add_source(AgentWaits(self._waited_s).metrics)
        for source in (self.loop.metrics, self._metrics, pool.metrics, listener.metrics):
            telemetry.add_source(source)
        telemetry.watch(version=lambda: listener.version)
        process.startup.mark_restored()

    def run(self, *checks: Callable[[], object]) -> None:
        # An RLX server without sessions is ready for them.
        limit, notice = self._process.config.run.max_env_steps, WaitNotice(logger, is_idle=True)
        while not self._process.should_stop():
            if limit is not None and self.sender is not None and self.sender.global_step >= limit:
                logger.info("the run has its %d env steps", limit)
                break
            if self.loop.step():
                notice.end()
                self._process.startup.mark_first_step()
            elif awaited := self._pool.awaited():
                notice.tell("%s", awaited)
            self._listener.check()
            for check in checks:
                check()

    def status(self) -> dict[str, Any]:
        """Explain which run this is, which parameters act, and how much is explored; from any thread."""
        exploration = self._agent.metrics().get("agent/epsilon")
        return {"run": self._process.client.run, "version": self._listener.version, "exploration": exploration}

    def _end_sender(self, sender: ExpSender, _: object, error: BaseException | None, __: object) -> None:
        """Send the remaining steps, unless this process does not belong to the run."""
        if isinstance(error, ContractError) or self._process.failure is not None:
            sender.discard()
        else:
            sender.close()

    def _on_episode(self, episode_return: float, length: int, env_id: int) -> None:
        self._process.telemetry.episode(episode_return, length, env_id)
        self._process.callbacks.on_episode(episode_return, length)

    def _metrics(self) -> dict[str, float]:
        self._rate.total = self.loop.env_steps
        return self._rate.metrics()

    def _waited_s(self) -> float:
        """Waits for credit or space, and for parameters after a round; in each case, the learner is slower."""
        of_rounds = self._rounds.waited_s if self._rounds is not None else 0.0
        return of_rounds + (self.sender.metrics()["sender/wait_s_total"] if self.sender is not None else 0.0)


class ListenedParameters:
    """Parameters as a `TorchListener` brings them; see `surreal.base.contracts.RoundParameters`.

    A learner of several ranks publishes what rank 0 learned from. Agents that send to other ranks are satisfied with
    the next update, which all ranks do together.
    """

    def __init__(self, listener: TorchListener) -> None:
        self._listener = listener
        self._updates = 0  # of the learner, when the wait began

    def hold(self) -> None:
        self._listener.hold()

    def release(self) -> None:
        self._updates = self._count_updates()
        self._listener.release()

    def has_learned(self, sender: str, sequence: int) -> bool:
        learned = read_learned(self._listener.message, sender)
        return self.has_updated() if learned is None else learned >= sequence

    def has_updated(self) -> bool:
        return self._count_updates() > self._updates

    def _count_updates(self) -> int:
        return read_progress(self._listener.message).get("updates", 0)


class AgentWaits:
    """Measures the shares of time in which an agent waits for the learner, and is busy.

    Before it begins it is neither, so an agent that has just come is busy for a part of the last seconds only: then
    the sum over all agents is what they did together, also while their number changes.
    """

    def __init__(self, waited_s: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._waited_s = waited_s
        self._clock = clock
        self._began_s = clock()
        self._waits = RateMeter("agent/waiting_ratio", window_s=WINDOW_S, clock=clock)
        self._waits.begin(waited_s())

    def metrics(self) -> dict[str, float]:
        """Shares of the last seconds."""
        self._waits.total = self._waited_s()
        shares = self._waits.metrics()
        waiting = min(shares.get("agent/waiting_ratio", 0.0), 1.0)
        there = min((self._clock() - self._began_s) / WINDOW_S, 1.0)
        return {**shares, "agent/busy_ratio": (1.0 - waiting) * there}


def saved_agent(policy: SavedPolicy, config: Config, spaces: Spaces, *, rng: np.random.Generator) -> Agent:
    """Make an agent that acts with a saved policy, if its parameters fit, and never explores."""
    if policy.exported is not None:
        agent = ExportedAgent(policy.exported, obs_spec=spaces.obs_spec)
        agent.expect_actions(spaces.action_space)
        agent.set_mode("eval")
        return agent
    model = acting.build_model(config, spaces)
    try:
        model.load_tensors(policy.tensors, header=policy.header)
    except ContractError as error:
        raise CheckpointError(f"the file's parameters do not fit its configuration: {error}") from error
    return acting.build_greedy_agent(config, model, spaces, rng=rng)
