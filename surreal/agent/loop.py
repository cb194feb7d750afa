"""`AgentLoop`: the one loop that drives every environment pool with an agent, and sends what happens.

The pool may hold environments of this process, of worker processes, or remote sessions; the loop does not know. It
does nothing per row in Python except for episodes that end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from surreal import tree
from surreal.agent.base import Agent
from surreal.agent.rounds import Rounds
from surreal.metrics import MeanDuration
from surreal.types import Action, StepBatch, StepKind

#: Called with return, length and environment id of an episode that ended.
EpisodeCallback = Callable[[float, int, int], object]

_FIRST = int(StepKind.FIRST)


class StepPool(Protocol):
    """What the loop needs of a pool (see `surreal.envs.pools.base.EnvPool`)."""

    def recv(self, timeout_s: float = ...) -> StepBatch:
        """Wait for rows."""

    def send(self, actions: NDArray[Any], env_ids: NDArray[np.int64]) -> None:
        """Hand over the actions for the rows that want one."""


class StepSender(Protocol):
    """Where experience goes (see `surreal.distributed.experience.sending.sender.ExpSender`)."""

    @property
    def global_step(self) -> int:
        """Env steps of the whole run as last heard."""

    def send_batch(self, batch: StepBatch, action: Action) -> None:
        """Take a batch and the actions for its rows `[num_last:]`; everything is copied."""

    def flush_due(self) -> None:
        """Send what has waited for too long; called while no environment is ready."""

    def flush(self) -> None:
        """Send all steps that are complete."""


class AgentLoop:
    """Receives rows, acts, sends the actions back and the experience on.

        loop = AgentLoop(pool, agent, sender, on_episode=...)
        loop.run(stop, max_env_steps=10_000)

    Args:
        pool: the environments.
        agent: chooses the actions; `agent.global_step` follows the sender's.
        sender: takes the experience; None acts without recording.
        on_episode: called on the loop's thread for each episode that ends.
        rounds: has the agent wait until parameters learned from what it sent; None never waits.

    Attributes:
        env_steps: actions taken in rows that are recorded.
        episodes: episodes that ended.
    """

    def __init__(
        self,
        pool: StepPool,
        agent: Agent,
        sender: StepSender | None,
        *,
        on_episode: EpisodeCallback | None = None,
        rounds: Rounds | None = None,
    ) -> None:
        self.env_steps = 0
        self.episodes = 0
        self._pool = pool
        self._agent = agent
        self._sender = sender
        self._on_episode = on_episode
        self._rounds = rounds
        self._duration = MeanDuration("agent/act_ms")
        self._last_action = Action(np.zeros(0, dtype=np.int64), {}, 0)

    def run(self, stop: threading.Event | None = None, max_env_steps: int | None = None) -> None:
        """Step until `stop` is set, or `max_env_steps` were taken since this loop was made (None: for ever)."""
        while not (stop and stop.is_set()) and (max_env_steps is None or self.env_steps < max_env_steps):
            self.step()

    def step(self, timeout_s: float = 0.1) -> int:
        """Handle one batch of the pool.

        Args:
            timeout_s: how long to wait for rows.

        Returns:
            How many rows acted.
        """
        batch = self._pool.recv(timeout_s)
        num_rows = len(batch.env_ids)
        num_last = batch.num_last
        sender = self._sender
        if num_last:
            self._report(batch)
        if self._rounds is not None:
            self._rounds.count(batch)
        if num_rows == num_last:
            if sender is not None:
                if num_rows or len(batch.closed_ids):
                    sender.send_batch(batch, self._no_action())
                else:
                    sender.flush_due()
            return 0
        agent = self._agent
        if sender is not None:
            agent.global_step = sender.global_step
        mask = batch.info.get("action_mask") if batch.info else None
        obs, kind, env_ids, explore, record = batch.obs, batch.kind, batch.env_ids, batch.explore, batch.record
        if num_last:
            acting = slice(num_last, None)
            obs, kind, env_ids = tree.take(obs, acting), kind[acting], env_ids[acting]
            explore, record = explore[acting], record[acting]
            mask = None if mask is None else mask[acting]
        began_s = time.perf_counter()
        action = self._last_action = agent.act_batch(obs, explore, env_ids, kind == _FIRST, mask)
        self._duration.add(time.perf_counter() - began_s)
        # First the environments, which can go on while the experience is encoded: the batch stays valid until recv.
        self._pool.send(action.actions, env_ids)
        if sender is not None:
            sender.send_batch(batch, action)
        self.env_steps += int(np.count_nonzero(record))
        if sender is not None and self._rounds is not None and self._rounds.is_over:
            sender.flush()
            self._rounds.wait(agent.model, action.version)
        return num_rows - num_last

    def metrics(self) -> dict[str, float]:
        """Give counters of the loop, the version that acts, and the agent's own metrics; from any thread."""
        return {
            "agent/env_steps_total": float(self.env_steps),
            "agent/episodes_total": float(self.episodes),
            "agent/version": float(self._agent.model.version),
            **self._duration.metrics(),
            **self._agent.metrics(),
            **(self._rounds.metrics() if self._rounds is not None else {}),
        }

    def _report(self, batch: StepBatch) -> None:
        returns = batch.info.get("episode_return")
        if returns is None:
            self.episodes += batch.num_last
            return
        lengths = batch.info["episode_length"]
        for row in range(batch.num_last):
            # nan: the row cuts the experience, but the environment's episode goes on.
            if not np.isnan(returns[row]):
                self.episodes += 1
                if self._on_episode is not None:
                    self._on_episode(float(returns[row]), int(lengths[row]), int(batch.env_ids[row]))

    def _no_action(self) -> Action:
        """Give actions for a batch without acting rows: none, but with the columns that all actions have."""
        last = self._last_action
        return Action(last.actions[:0], {name: column[:0] for name, column in last.extras.items()}, last.version)
