"""`Rounds`: an agent acts with one version of the parameters for a round, then waits until they learned from it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import NDArray

from surreal.base.contracts import ModelView, RoundParameters
from surreal.base.ranges import PositiveInt, checked
from surreal.base.types import StepBatch, StepKind

logger = logging.getLogger(__name__)

#: How often a waiting agent checks whether to continue, s.
_POLL_S = 0.01
#: Waits that timed out between two warnings.
_WARN_EVERY = 100


@checked
@dataclass(eq=False, repr=False)
class Rounds:
    """Keeps experience on-policy: each trajectory is acted by one version, which has learned from the one before.

    A round has `steps` steps of each environment. An environment that has its steps rests until all have theirs; the
    agent sends them, and waits until the learner has published parameters that learned from them. What counts is what
    the learner says it has learned from, not the number of versions: a learner that is restarted publishes the same
    parameters again under another version. While the agent acts, no newer parameters come.

    Sessions that come and go, the seats of a game, and the parts of a vector environment cannot rest for each other.
    Their round is over when a number of trajectories is complete, no matter which; open trajectories continue with the
    next version. Trajectories beyond that number count for the next round, as they do for the replay's next batch. The
    agent waits for the next update, because the batch can be complete before the last chunk of its round arrives.
    """

    steps: PositiveInt  #: steps of a trajectory: `trajectory_steps` of the replay
    trajectories: PositiveInt  #: trajectories of a round: the environments, which all take part
    _: KW_ONLY
    is_shared: bool = False  #: whether they come and go, or step only all at once, and so do not rest
    #: source of newer parameters; None: the caller loads them between two rounds
    parameters: RoundParameters | None = None
    #: timeout of a wait, s. Then the agent continues with its current parameters, so that a dead agent or learner does
    #: not stop the others. Raising it waits longer for one that is restarted
    timeout_s: float = 30.0
    should_stop: Callable[[], bool] = lambda: False  #: asked while waiting; True ends the wait

    def __post_init__(self) -> None:
        self.done = 0  #: rounds that are over
        self.waited_s = 0.0  #: total wait for parameters, s
        self.timeouts = 0  #: waits that timed out
        # steps of each environment's trajectory
        self._counts: NDArray[np.int64] = np.zeros(self.trajectories, np.int64)
        self._complete = 0  # trajectories of the round

    @property
    def is_over(self) -> bool:
        return self._complete >= self.trajectories

    def count(self, batch: StepBatch) -> None:
        """Count the steps that a pool's rows complete."""
        missing = int(batch.env_ids.max(initial=-1)) + 1 - len(self._counts)
        if missing > 0:  # sessions that are new
            self._counts = np.append(self._counts, np.zeros(missing, np.int64))
        has_step = batch.kind != StepKind.FIRST
        if self.is_shared:
            has_step &= batch.record
        env_ids = batch.env_ids[has_step]
        self._counts[env_ids] += 1
        if self.is_shared:
            full = env_ids[self._counts[env_ids] == self.steps]
            self._complete += len(full)
            self._counts[full] = 0
            return
        if len(batch.closed_ids):
            self._begin_again(batch)
        self._complete = int(np.count_nonzero(self._counts >= self.steps))

    def resting(self, env_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Report of each of these environments [N] whether its next action belongs to the next round."""
        return np.full(len(env_ids), self.is_over) if self.is_shared else self._counts[env_ids] >= self.steps

    def wait(self, model: ModelView, sent_through: tuple[str, int]) -> bool:
        """Begin the next round when the parameters have learned from this one, or waiting longer is useless.

        `sent_through` is the sender's name, and the number of its last chunk. Returns whether they have learned from
        it.
        """
        self.done += 1
        if self.is_shared:
            self._complete = max(0, self._complete - self.trajectories)
        else:
            self._complete = 0
            self._counts[:] = 0
        if self.parameters is None:
            return True
        started = time.monotonic()
        self.parameters.release()
        while True:
            version = model.version
            parameters = self.parameters
            has_learned = parameters.has_updated() if self.is_shared else parameters.has_learned(*sent_through)
            if has_learned or model.failure is not None or self.should_stop():
                break
            if time.monotonic() - started >= self.timeout_s:
                if self.timeouts % _WARN_EVERY == 0:
                    logger.warning("no parameters came within %g s of a round; continuing without", self.timeout_s)
                self.timeouts += 1
                break
            model.wait_for_version(version + 1, _POLL_S)
        self.parameters.hold()
        self.waited_s += time.monotonic() - started
        return has_learned

    def _begin_again(self, batch: StepBatch) -> None:
        """Restart the trajectory of environments that lost their episode.

        Environments that step together cannot rest for one that is behind, so those that stepped with it begin again.
        """
        lost = batch.closed_ids[self._counts[batch.closed_ids] < self.steps]
        behind = self._counts[lost[np.isin(lost, batch.env_ids)]]
        self._counts[lost] = 0
        self._counts[batch.env_ids[np.isin(self._counts[batch.env_ids], behind + 1)]] = 0

    def metrics(self) -> dict[str, float]:
        return {"agent/round_wait_s_total": self.waited_s, "agent/round_timeouts_total": float(self.timeouts)}
