"""`surreal teach`: an agent of a run in progress with one environment, in which a person or a script may take over.

It acts with the newest policy, as the run's other agents do, and sends whole episodes: one that is discarded leaves
nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.base.contracts import StepSender
from surreal.base.errors import ConfigError, StoppedError
from surreal.base.tree import take_actions, take_rows
from surreal.base.types import IS_INTERVENTION, Action, StepBatch, StepKind
from surreal.envs import LocalEnvPool
from surreal.envs.wrappers.intervention import Intervention
from surreal.plugins.runs.keyboard import Keyboard
from surreal.run.build.environments import Spaces, build_env
from surreal.run.process.role import RoleProcess
from surreal.run.session.acting import ActingSession

#: Bytes of observations of an episode that can be discarded; of a longer one, what is held is sent.
_MAX_HELD_BYTES = 256 << 20


class Taught(NamedTuple):
    """An episode that was played."""

    number: int  #: from 1
    episode_return: float  #: as the environment counts it, without the rewards of marks
    length: int
    replaced: int  #: steps whose action the teacher chose
    is_sent: bool  #: else discarded


class WholeEpisodes:
    """Holds the rows of one environment until its episode is over; a `StepSender` for an `AgentLoop` without rounds.

    Args:
        is_discarded: asked at the end of an episode.
        on_episode: called at the end of an episode, except of one that was lost.
    """

    def __init__(
        self,
        sender: StepSender,
        is_discarded: Callable[[], bool],
        *,
        max_rows: int,
        on_episode: Callable[[Taught], object] = lambda _: None,
    ) -> None:
        self._sender, self._is_discarded, self._on_episode = sender, is_discarded, on_episode
        self._max_rows = max_rows
        self._held: list[tuple[StepBatch, Action]] = []
        self._is_open = False  # whether the episode in progress is too long to be held
        self._episodes = self._replaced = 0

    @property
    def global_step(self) -> int:
        return self._sender.global_step

    @property
    def sent_through(self) -> tuple[str, int]:
        return self._sender.sent_through

    def send_batch(self, batch: StepBatch, action: Action) -> None:
        """Take the rows of the environment: the end of an episode leaves with all its rows, or they are dropped."""
        if len(batch.closed_ids):  # the environment lost the episode
            self._held, self._is_open, self._replaced = [], False, 0
            self._sender.send_batch(take_rows(batch, np.zeros(len(batch.kind), np.bool_)), _some(action, False))
        is_last = batch.kind == StepKind.LAST
        self._replaced += IS_INTERVENTION in batch.info  # of the one environment
        if batch.num_last:
            self._end(take_rows(batch, is_last), _some(action, False))
        if batch.num_last < len(batch.kind):
            rows = take_rows(batch, ~is_last)._replace(closed_ids=batch.closed_ids[:0])
            self._held.append((rows, _some(action, True)))  # copies: the pool overwrites its rows
            self._is_open = self._is_open or len(self._held) > self._max_rows
        if self._is_open:
            self._send_held()

    def send_outcomes(self, batch: StepBatch) -> None:
        raise ValueError("whole episodes know no rounds")

    def send_actions(self, env_ids: NDArray[np.int64], record: NDArray[np.bool_], action: Action) -> None:
        raise ValueError("whole episodes know no rounds")

    def flush_due(self) -> None:
        self._sender.flush_due()

    def flush(self) -> None:
        self._sender.flush()

    def _end(self, last: StepBatch, action: Action) -> None:
        is_sent = self._is_open or not self._is_discarded()
        if is_sent:
            self._send_held()
            self._sender.send_batch(last, action)
            self._sender.flush()
        self._episodes += 1
        episode_return, length = (float(last.info[f"episode_{name}"][0]) for name in ("return", "length"))
        self._on_episode(Taught(self._episodes, episode_return, int(length), self._replaced, is_sent))
        self._held, self._is_open, self._replaced = [], False, 0

    def _send_held(self) -> None:
        held, self._held = self._held, []
        for batch, action in held:
            self._sender.send_batch(batch, action)


def _some(action: Action, keep: bool) -> Action:
    return take_actions(action, np.full(len(action.actions), keep))


@dataclass(frozen=True)
class Teaching:
    """The body of the process: `run_role(AGENT, Teaching(...), arguments)`."""

    expert: str | None  #: `module:Class`; None: the keyboard
    episodes: int | None  #: to play; None: until the run ends
    success_reward: float
    failure_reward: float
    say: Callable[[str], object]

    def __call__(self, process: RoleProcess) -> None:
        """Act and teach until the run ends, or there are enough episodes."""
        config, finished = process.config, threading.Event()
        if config.has_parameter_servers:
            raise ConfigError("learner.gradients is agents: no agent can join that learns nothing", key="RUN")
        if not config.env.has_interventions:
            raise ConfigError(
                f"run {process.client.run} does not record interventions; start it with --set env.interventions=true",
                key="RUN",
            )
        if config.env.rate_hz is not None:
            raise ConfigError(
                f"env.rate_hz is {config.env.rate_hz:g}, and a taught environment keeps no time; what drives it can "
                "replace actions itself (docs/person.md)",
                key="RUN",
            )
        with ExitStack() as stack:
            env = build_env(config, training=True, render_mode=None if self.expert is not None else "rgb_array")
            expert: Any = self.expert
            if expert is None:
                expert = Keyboard(env, always=False)
                self.say(expert.help)
            taught = Intervention(env, expert, success_reward=self.success_reward, failure_reward=self.failure_reward)
            pool = LocalEnvPool([lambda: taught], seed=(config.seed, 1, process.index), interventions=True)
            stack.callback(pool.close)

            def report(episode: Taught) -> None:
                end = "sent" if episode.is_sent else "discarded"
                self.say(
                    f"episode {episode.number}: return {episode.episode_return:g}, {episode.length} steps, "
                    f"{episode.replaced} by the teacher, {end}"
                )
                if self.episodes is not None and episode.number >= self.episodes:
                    finished.set()

            def check() -> None:
                if finished.is_set():
                    raise StoppedError("there are enough episodes")

            max_rows = max(1, _MAX_HELD_BYTES // pool.obs_spec.row_bytes)
            session = ActingSession(
                process,
                stack,
                pool,
                Spaces(pool.obs_spec, pool.action_space),
                around_sender=lambda sender: WholeEpisodes(
                    sender, lambda: taught.is_discarded, max_rows=max_rows, on_episode=report
                ),
            )
            session.run(check)
