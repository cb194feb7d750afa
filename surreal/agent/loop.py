"""`AgentLoop`: the one loop that drives every environment pool with an agent, and sends the experience.

The pool may hold environments of this process, of worker processes, or remote sessions; the loop does not know. It
does nothing per row in Python except for episodes that end.

`InterventionCounter` counts how often something else takes over from the agent, in the last episodes.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.agent.rounds import Rounds
from surreal.agent.slots import CARRIED_RETURN, RunningReturns
from surreal.base import tree
from surreal.base.contracts import AgentView, EnvPool, StepSender
from surreal.base.metrics import MeanDuration
from surreal.base.types import IS_INTERVENTION, Action, Obs, StepBatch, StepKind

#: Called with return, length and environment id of an episode that ended.
EpisodeCallback = Callable[[float, int, int], object]

_FIRST = int(StepKind.FIRST)


class _Rows(NamedTuple):
    """Rows that want an action."""

    obs: Obs
    kind: NDArray[np.uint8]
    env_ids: NDArray[np.int64]
    explore: NDArray[np.bool_]
    record: NDArray[np.bool_]
    reward: NDArray[np.float32]
    mask: NDArray[np.bool_] | None

    @classmethod
    def acting(cls, batch: StepBatch) -> _Rows:
        mask = batch.info.get("action_mask") if batch.info else None
        rows = cls(batch.obs, batch.kind, batch.env_ids, batch.explore, batch.record, batch.reward, mask)
        return rows.take(slice(batch.num_last, None)) if batch.num_last else rows

    def take(self, index: slice | NDArray[np.bool_]) -> _Rows:
        """Select some of these rows; an array copies them."""
        mask = None if self.mask is None else self.mask[index]
        return _Rows(
            tree.take(self.obs, index), self.kind[index], self.env_ids[index], self.explore[index], self.record[index],
            self.reward[index], mask,
        )  # fmt: skip

    def without(self, env_ids: NDArray[np.int64]) -> _Rows:
        """Select the rows of all other environments."""
        return self.take(~np.isin(self.env_ids, env_ids))


@dataclass(eq=False, repr=False)
class AgentLoop:
    """Receives rows, acts, sends the actions back and the experience on.

    loop = AgentLoop(pool, agent, sender, on_episode=...)
    loop.run(stop, max_env_steps=10_000)
    """

    pool: EnvPool
    agent: AgentView  #: chooses the actions; `agent.global_step` follows the sender's
    sender: StepSender | None  #: takes the experience; None acts without recording
    _: KW_ONLY
    on_episode: EpisodeCallback | None = None  #: called on the loop's thread for each episode that ends
    #: makes the agent wait until parameters have learned from its steps; None, or without a sender: it never waits
    rounds: InitVar[Rounds | None] = None
    interventions: InitVar[bool] = False  #: whether something else may replace actions, which is counted
    #: discount of the returns that are recorded where the model scales rewards by them; None records none
    gamma: InitVar[float | None] = None

    def __post_init__(self, rounds: Rounds | None, interventions: bool, gamma: float | None) -> None:
        self.env_steps = 0  #: actions taken in rows that are recorded
        self.episodes = 0  #: episodes that ended
        self._rounds = rounds if self.sender is not None else None
        self._interventions = InterventionCounter() if interventions else None
        self._rested: list[_Rows] = []  # rows whose actions belong to the next round
        records_returns = gamma is not None and self.sender is not None and self.agent.model.scales_rewards
        self._returns = RunningReturns(gamma) if records_returns and gamma is not None else None
        self._duration = MeanDuration("agent/act_ms")
        self._last_action = Action(np.zeros(0, dtype=np.int64), {}, 0)

    def run(self, stop: threading.Event | None = None, max_env_steps: int | None = None) -> None:
        """Step until `stop` is set, or `max_env_steps` were taken since this loop was made (None: forever)."""
        while not (stop and stop.is_set()) and (max_env_steps is None or self.env_steps < max_env_steps):
            self.step()

    def step(self, timeout_s: float = 0.1) -> int:
        """Handle one batch of the pool, after at most `timeout_s`; return how many rows acted."""
        if self._rounds is not None and self._rounds.is_over:
            return self._begin_round(self._rounds)
        batch = self.pool.recv(timeout_s)
        num_rows = len(batch.env_ids)
        num_last = batch.num_last
        sender = self.sender
        if num_last:
            self._report(batch)
        if self._interventions is not None:
            self._interventions.count(batch)
        if self.agent.wants_outcomes:
            self.agent.observe(batch)
        is_resting = None
        if self._rounds is not None:
            if len(batch.closed_ids) and self._rested:
                self._rested = [rows.without(batch.closed_ids) for rows in self._rested]
            self._rounds.count(batch)
            is_resting = self._rounds.resting(batch.env_ids[num_last:])
            if self._rounds.is_over or is_resting.any():
                return self._rest(batch, is_resting)
        if num_rows == num_last:
            if sender is not None:
                if num_rows or len(batch.closed_ids):
                    sender.send_batch(batch, self._no_action())
                else:
                    sender.flush_due()
            return 0
        # First the environments, which can continue while the experience is encoded: the batch stays valid until recv.
        action = self._act(_Rows.acting(batch))
        if sender is not None:
            sender.send_batch(batch, action)
        return num_rows - num_last

    def metrics(self) -> dict[str, float]:
        """Return counters of the loop, the version that acts, and the agent's own metrics; from any thread."""
        return {
            "agent/env_steps_total": float(self.env_steps),
            "agent/episodes_total": float(self.episodes),
            "agent/version": float(self.agent.model.version),
            **self._duration.metrics(),
            **self.agent.metrics(),
            **(self._rounds.metrics() if self._rounds is not None else {}),
            **(self._interventions.metrics() if self._interventions is not None else {}),
        }

    def _act(self, rows: _Rows) -> Action:
        if self.sender is not None:
            self.agent.global_step = self.sender.global_step
        self.agent.shows = self.pool.wants
        began_s = time.perf_counter()
        is_first = rows.kind == _FIRST
        action = self.agent.act_batch(rows.obs, rows.explore, rows.env_ids, is_first, rows.mask)
        if self._returns is not None:
            carried = self._returns.carry(rows.env_ids, is_first, rows.reward)
            action = action._replace(extras={**action.extras, CARRIED_RETURN: carried})
        count, seconds = self._duration.total
        self._duration.total = count + 1, seconds + time.perf_counter() - began_s
        self._last_action = action
        if self.pool.wants:
            self.pool.show(action.outputs, rows.env_ids)
        self.pool.send(action.actions, rows.env_ids)
        self.env_steps += int(np.count_nonzero(rows.record))
        return action

    def _act_later(self, rows: _Rows) -> int:
        """Act in rows whose outcomes were sent already; returns how many there are."""
        if self.sender is not None and len(rows.env_ids):
            self.sender.send_actions(rows.env_ids, rows.record, self._act(rows))
        return len(rows.env_ids)

    def _rest(self, batch: StepBatch, is_resting: NDArray[np.bool_]) -> int:
        """Act where the round is not over; the other rows rest. Send the round if that was its last step."""
        sender, rounds = self.sender, self._rounds
        if sender is None or rounds is None:
            raise ValueError("rounds need a sender")
        rows = _Rows.acting(batch)
        sender.send_outcomes(batch)
        self._rested.append(rows.take(is_resting))
        acted = self._act_later(rows.take(~is_resting))
        if rounds.is_over:
            sender.flush()
        return acted

    def _begin_round(self, rounds: Rounds) -> int:
        """Wait for parameters that learned from the round that is over, and act with them where environments rest."""
        if self.sender is not None:
            rounds.wait(self.agent.model, self.sender.sent_through)
        rested, self._rested = self._rested, []
        return sum(map(self._act_later, rested))

    def _report(self, batch: StepBatch) -> None:
        returns = batch.info.get("episode_return")
        if returns is None:
            self.episodes += batch.num_last
            return
        lengths = batch.info["episode_length"]
        for row in range(batch.num_last):
            # nan: the row cuts the experience, but the environment's episode continues.
            if not np.isnan(returns[row]):
                self.episodes += 1
                if self.on_episode is not None:
                    self.on_episode(float(returns[row]), int(lengths[row]), int(batch.env_ids[row]))

    def _no_action(self) -> Action:
        """Return actions for a batch without acting rows: none, but with the columns that all actions have."""
        last = self._last_action
        return Action(last.actions[:0], {name: column[:0] for name, column in last.extras.items()}, last.version)


_WINDOW = 100
_STEPS, _REPLACED, _BEGUN, _GOES_ON = range(4)


class InterventionCounter:
    """Counts interventions by a pool's rows: consecutive steps whose actions were replaced are one intervention."""

    def __init__(self) -> None:
        self.total = 0
        self._slots: NDArray[np.int64] = np.zeros((0, 4), np.int64)  # of each environment's episode, see above
        self._episodes: deque[NDArray[np.int64]] = deque(maxlen=_WINDOW)

    def count(self, batch: StepBatch) -> None:
        """Count the steps that these rows complete; called with every batch of the pool."""
        missing = int(batch.env_ids.max(initial=-1)) + 1 - len(self._slots)
        if missing > 0:
            self._slots = np.pad(self._slots, ((0, missing), (0, 0)))
        self._slots[batch.closed_ids[batch.closed_ids < len(self._slots)]] = 0
        has_step = batch.kind != StepKind.FIRST
        slots, replaced = batch.env_ids[has_step], batch.info.get(IS_INTERVENTION)
        is_replaced = np.zeros(len(slots), np.int64) if replaced is None else replaced[has_step].astype(np.int64)
        begins = is_replaced * (1 - self._slots[slots, _GOES_ON])
        self._slots[slots, : _BEGUN + 1] += np.stack((np.ones_like(is_replaced), is_replaced, begins), axis=1)
        self._slots[slots, _GOES_ON] = is_replaced
        self.total += int(begins.sum())
        ended = batch.env_ids[: batch.num_last]
        self._episodes.extend(self._slots[ended])
        self._slots[ended] = 0

    def metrics(self) -> dict[str, float]:
        """Return the interventions so far, and those of the last 100 episodes; from any thread."""
        found = {"agent/interventions_total": float(self.total)}
        if episodes := list(self._episodes):
            steps, replaced, begun, _ = np.sum(episodes, axis=0).tolist()
            found["agent/interventions_per_episode"] = begun / len(episodes)
            found["agent/intervention_ratio"] = replaced / max(steps, 1)
        return found
