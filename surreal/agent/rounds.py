"""`Rounds`: an agent that takes so many env steps, and then waits for parameters that learned from them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from surreal.utils.pytorch import Module

logger = logging.getLogger(__name__)

_POLL_S = 0.001
#: Waits in vain between two warnings.
_WARN_EVERY = 100


class Rounds:
    """Makes experience of one version, or nearly so: on-policy algorithms lose what lags.

    The newest version is the barrier, so nobody keeps a list of agents: the learner makes one when all have sent their
    part. The first action of a round is chosen before the wait, for only with the rows that ask for it is the last step
    of the round before complete.

    Args:
        steps: env steps of each environment in a round, >= 1: `trajectory_steps` of the replay.
        num_envs: environments of the agent, >= 1.
        timeout_s: of a wait; then the agent goes on with what it has, so that an agent or a learner that died does not
            stop all others. Raising it waits longer for one that is restarted.
        should_stop: asked while waiting; True ends the wait.

    Attributes:
        waited_s: for parameters, in all.
        timeouts: waits that were in vain.
    """

    def __init__(self, steps: int, num_envs: int, *, timeout_s: float, should_stop: Callable[[], bool]) -> None:
        if steps < 1 or num_envs < 1:
            raise ValueError(f"steps is {steps} and num_envs {num_envs}; both must be >= 1")
        self.waited_s = 0.0
        self.timeouts = 0
        self._round_steps = steps * num_envs
        self._due = self._round_steps + num_envs
        self._timeout_s = timeout_s
        self._should_stop = should_stop

    def is_over(self, env_steps: int) -> bool:
        """Whether a round ends with so many env steps since the beginning."""
        return env_steps >= self._due

    def wait(self, model: Module, version: int) -> bool:
        """Wait for parameters newer than `version`, or for a reason to go on without; returns whether they came."""
        self._due += self._round_steps
        started = time.monotonic()
        while model.version <= version and model.failure is None and not self._should_stop():
            if time.monotonic() - started >= self._timeout_s:
                if self.timeouts % _WARN_EVERY == 0:
                    logger.warning("no parameters came within %g s of a round; going on without", self._timeout_s)
                self.timeouts += 1
                break
            time.sleep(_POLL_S)
        self.waited_s += time.monotonic() - started
        return model.version > version

    def metrics(self) -> dict[str, float]:
        """Give numbers for the run's telemetry; from any thread."""
        return {"agent/round_wait_s": self.waited_s, "agent/round_timeouts": float(self.timeouts)}
