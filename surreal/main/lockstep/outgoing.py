"""`Outgoing`: the gradients of an agent's learner on their way to the parameter servers, and what comes of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from surreal.learner.gradients import GradientLearner, Gradients

logger = logging.getLogger(__name__)

#: Waits in vain between two warnings.
_WARN_EVERY = 100


class Pushed(Protocol):
    """What a sender says of a push; see `surreal.distributed.gradients.sender`."""

    @property
    def status(self) -> str:
        """`ok`, or why it was refused."""

    @property
    def global_step(self) -> int:
        """Env steps of the whole run."""

    @property
    def newest_version(self) -> int:
        """Of the parameters, that the servers have told."""


class Sender(Protocol):
    """Pushes gradients to the parameter servers."""

    def push(
        self,
        gradients: Mapping[str, Mapping[str, Tensor]],
        *,
        version: int,
        env_steps: int,
        episodes: int = 0,
        updates: int = 1,
        stop: threading.Event | None = None,
    ) -> Pushed:
        """Push the gradients of one update."""


class Listener(Protocol):
    """Loads parameters into the learner's model."""

    @property
    def version(self) -> int:
        """Of the parameters that were loaded last."""

    def update_once(self) -> bool:
        """Load the newest parameters, if they are newer."""

    def step(self) -> None:
        """Wait a moment for newer parameters, and load them."""


class Waiting(NamedTuple):
    """When an agent waits for newer parameters: so many updates after those that it has came.

    It never runs far ahead of servers that are busy, or away: they would find gradients that are of no use any more.
    """

    after: int  #: updates, >= 1
    most: int  #: after a wait in vain, >= `after`: others may be dead, whose gradients a mean waits for
    timeout_s: float  #: of a wait


class Outgoing:
    """Pushes what a learner's updates come to, in place of its own steps; used by one thread.

    The gradients of an update go together when it is done. Those of a learner that takes several steps go one by one,
    for each step begins where the one before ended: it waits for these parameters.

    Args:
        learner: whose gradients these are, from now on.
        sender: to the parameter servers.
        listener: of the learner's model.
        waiting: when to wait.
        counts: gives the env steps and episodes of this agent so far.
        stop: ends a wait.

    Attributes:
        global_step: env steps of the whole run, as last heard.
    """

    def __init__(
        self,
        learner: GradientLearner,
        sender: Sender,
        listener: Listener,
        *,
        waiting: Waiting,
        counts: Callable[[], tuple[int, int]],
        stop: threading.Event,
    ) -> None:
        self.global_step = 0
        self._learner = learner
        self._sender = sender
        self._listener = listener
        self._waiting = waiting
        self._counts = counts
        self._stop = stop
        self._collected: dict[str, dict[str, Tensor]] = {}
        self._counted = (0, 0)
        self._awaited = 0  # the version that a wait goes beyond
        self._ahead = 0  # updates that were pushed since newer parameters came
        self._was_in_vain = False  # the last wait
        self._waited_s = 0.0
        self._timeouts = 0
        learner.send_gradients(self._add)

    def finish_update(self) -> None:
        """Push what the update has come to, and take newer parameters, or wait for them.

        Raises:
            SurrealError: the servers cannot be reached, or took nothing for too long.
        """
        if self._collected:
            self._push()
            self._ahead += 1
        if self._ahead >= (self._waiting.most if self._was_in_vain else self._waiting.after):
            self._wait()
        elif self._listener.update_once():
            self._begin_anew()

    def metrics(self) -> dict[str, float]:
        """How long this agent has waited, and how often in vain."""
        return {
            "agent/gradient_wait_s_total": self._waited_s,
            "agent/gradient_timeouts_total": float(self._timeouts),
        }

    def _add(self, found: Sequence[Gradients]) -> None:
        """Take the gradients of one loss."""
        for gradients in found:
            if gradients.group in self._collected:  # of a step before; what it left is not waited for
                self._push()
            self._collected[gradients.group] = gradients.tensors
        if self._learner.takes_several_steps:
            self._push()
            self._wait()

    def _push(self) -> None:
        collected, self._collected = self._collected, {}
        now = self._counts()
        steps, episodes = (total - before for total, before in zip(now, self._counted, strict=True))
        version = self._learner.model.version
        pushed = self._sender.push(
            collected,
            version=version,
            env_steps=steps,
            episodes=episodes,
            updates=self._learner.updates + 1,
            stop=self._stop,
        )
        self._counted = now
        self.global_step = max(self.global_step, pushed.global_step)
        self._learner.on_global_step(self.global_step)
        # One that was refused leads to nothing; what made it stale is there already.
        self._awaited = max(version, pushed.newest_version) if pushed.status == "ok" else version - 1

    def _wait(self) -> None:
        """Wait until newer parameters are loaded than any that the last push can have met."""
        started = time.monotonic()
        self._listener.update_once()
        while self._listener.version <= self._awaited and not self._stop.is_set():
            if time.monotonic() - started >= self._waiting.timeout_s:
                if self._timeouts % _WARN_EVERY == 0:
                    what = "no parameters came of a gradient within %g s; going on without"
                    logger.warning(what, self._waiting.timeout_s)
                self._timeouts += 1
                self._was_in_vain = True
                break
            self._listener.step()
        else:
            self._begin_anew()
        self._waited_s += time.monotonic() - started

    def _begin_anew(self) -> None:
        """Newer parameters are here."""
        self._ahead, self._was_in_vain = 0, False
