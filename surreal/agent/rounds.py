"""`Rounds`: an agent that waits for parameters which learned from what it sent, before it acts on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from surreal.types import StepBatch, StepKind
from surreal.utils.pytorch import Module

logger = logging.getLogger(__name__)

#: Between two looks whether to go on without.
_POLL_S = 0.01
#: Waits in vain between two warnings.
_WARN_EVERY = 100


class Rounds:
    """Keeps experience new: on-policy algorithms lose what lags.

    A round is over when the agent has sent its trajectories: one of each environment, its part of a batch if each
    environment of the run has one trajectory in it; of sessions that come and go, a whole batch. It is learned from
    when the version has grown by one. So the agent
    counts its rows as the replay cuts them, where the end of an episode takes a row of its own, and the newest version
    is the barrier: nobody keeps a list of agents, and the agent that is furthest behind never waits for one that is
    ahead.

    One action is chosen before each wait, for only with the rows that ask for it is the last step complete.

    Args:
        steps: rows of a trajectory, >= 1: `trajectory_steps` of the replay.
        trajectories: of a round, >= 1.
        timeout_s: of a wait; then the agent goes on with what it has, so that an agent or a learner that died does not
            stop all others. Raising it waits longer for one that is restarted.
        should_stop: asked while waiting; True ends the wait.

    Attributes:
        done: rounds that are over and were waited for.
        waited_s: for parameters, in all.
        timeouts: waits that were in vain.
    """

    def __init__(self, steps: int, trajectories: int, *, timeout_s: float, should_stop: Callable[[], bool]) -> None:
        if steps < 1 or trajectories < 1:
            raise ValueError(f"steps is {steps} and trajectories {trajectories}; both must be >= 1")
        self.waited_s = 0.0
        self.timeouts = 0
        self._steps = steps
        self._per_round = trajectories
        self._rows: NDArray[np.int64] = np.zeros(trajectories, np.int64)  # of each environment's open trajectory
        self._trajectories = 0
        self.done = 0
        self._base: int | None = None  # version before the first round was learned from
        self._timeout_s = timeout_s
        self._should_stop = should_stop

    @property
    def is_over(self) -> bool:
        """Whether a round is over that was not waited for."""
        return self._trajectories // self._per_round > self.done

    def count(self, batch: StepBatch) -> None:
        """Count the steps that a pool's rows complete."""
        missing = int(batch.env_ids.max(initial=-1)) + 1 - len(self._rows)
        if missing > 0:  # sessions that are new
            self._rows = np.append(self._rows, np.zeros(missing, np.int64))
        has_step = (batch.kind != StepKind.FIRST) & batch.record
        last = np.arange(len(batch.kind)) < batch.num_last
        self._add_rows(batch.env_ids[has_step])
        ended = batch.env_ids[has_step & last]
        # A row of the final observation never stands first in a trajectory.
        self._add_rows(ended[self._rows[ended] > 0])

    def wait(self, model: Module, version: int) -> bool:
        """Wait until all rounds were learned from, or for a reason to go on before; returns whether they were.

        Args:
            model: whose parameters a listener replaces.
            version: that acted last.
        """
        self.done = self._trajectories // self._per_round
        if self._base is None:
            self._base = version
        wanted = self._base + self.done
        started = time.monotonic()
        while model.version < wanted and model.failure is None and not self._should_stop():
            if time.monotonic() - started >= self._timeout_s:
                if self.timeouts % _WARN_EVERY == 0:
                    logger.warning("no parameters came within %g s of a round; going on without", self._timeout_s)
                self.timeouts += 1
                self._base = model.version - self.done  # what did not come now is not waited for again
                break
            model.wait_for_version(wanted, _POLL_S)
        self.waited_s += time.monotonic() - started
        return model.version >= wanted

    def metrics(self) -> dict[str, float]:
        """Give numbers for the run's telemetry; from any thread."""
        return {"agent/round_wait_s_total": self.waited_s, "agent/round_timeouts_total": float(self.timeouts)}

    def _add_rows(self, env_ids: NDArray[np.int64]) -> None:
        """Add a row to the open trajectories of these environments, each named once."""
        self._rows[env_ids] += 1
        full = self._rows >= self._steps
        self._trajectories += int(full.sum())
        self._rows[full] = 0
