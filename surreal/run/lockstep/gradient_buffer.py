"""`GradientBuffer`: gradients of an agent's learner on their way to the parameter servers, and the replies."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from surreal.distributed.gradients.sender import GradientSender
from surreal.distributed.parameters.listener import TorchListener
from surreal.learner import GradientLearner, Gradients
from surreal.model.filters import FilterCounts
from surreal.run.process.progress import read_applied

logger = logging.getLogger(__name__)

#: Waits without success between two warnings.
_WARN_EVERY = 100


class WaitLimits(NamedTuple):
    """Limits on how far an agent continues without parameters that include its gradients."""

    ahead: int  #: gradients of its own that are not in its parameters, >= 0
    most: int  #: after a wait without success, >= `ahead`: others may be dead, whose gradients a mean waits for
    timeout_s: float  #: of a wait


@dataclass(eq=False)
class GradientBuffer:
    """Pushes the gradients of a learner's updates instead of stepping; used by one thread.

    The gradients of an update go together when it is done. Those of a learner that takes several steps go one by one,
    for each step begins where the one before ended: it waits for these parameters.
    """

    learner: GradientLearner  #: the learner whose gradients are pushed from now on
    sender: GradientSender
    listener: TorchListener
    waiting: WaitLimits
    counts: Callable[[], tuple[int, int]]  #: gives the env steps and episodes of this agent so far
    stop: threading.Event  #: ends a push that waits
    check_stop: Callable[[], object]  #: called while waiting; what it raises ends the wait

    def __post_init__(self) -> None:
        self.global_step = 0  #: env steps of the whole run, as last heard
        self._collected: dict[str, dict[str, Tensor]] = {}
        self._counted = (0, 0)
        self._pushed = self._applied = 0  # gradients, and how many of them are in the parameters
        self._was_in_vain = False  # the last wait
        self._message = self.listener.message
        self._waited_s = 0.0
        self._timeouts = 0
        self._filters = FilterCounts(self.learner.model)
        self._filters.track()
        self.learner.send_gradients(self._add)

    def finish_update(self) -> None:
        """Push the update's gradients, and load newer parameters, or wait for them."""
        if self._collected:
            self._push()
        if self.listener.update_once():
            self._note_applied()
        self._wait(self.waiting.most if self._was_in_vain else self.waiting.ahead)

    def metrics(self) -> dict[str, float]:
        """Metrics: how long this agent has waited, and how often without success."""
        return {"agent/gradient_wait_s_total": self._waited_s, "agent/gradient_timeouts_total": float(self._timeouts)}

    def _add(self, found: Sequence[Gradients]) -> None:
        for gradients in found:
            if gradients.group in self._collected:  # of a step before; what it left is not waited for
                self._push()
            self._collected[gradients.group] = gradients.tensors
        if self.learner.takes_several_steps:
            self._push()
            self._wait(0)

    def _push(self) -> None:
        collected, self._collected = self._collected, {}
        now = self.counts()
        steps, episodes = (total - before for total, before in zip(now, self._counted, strict=True))
        pushed = self.sender.push(
            {**collected, **self._filters.pending()},
            version=self.learner.model.version,
            env_steps=steps,
            episodes=episodes,
            updates=self._pushed + 1,
            stop=self.stop,
        )
        self._pushed += pushed.status == "ok"  # one that was refused leads to nothing
        is_finite = pushed.status != "not_finite"
        for group in collected:
            self.learner.skipped.note(group, torch.tensor(0.0 if is_finite else math.nan))
        if pushed.status in ("ok", "not_finite"):  # what is not finite would be refused again and again
            self._filters.forget()
        self._counted = now
        self.global_step = max(self.global_step, pushed.global_step)
        self.learner.on_global_step(self.global_step)

    def _wait(self, ahead: int) -> None:
        started = time.monotonic()
        while self._pushed - self._applied > ahead:
            self.check_stop()
            if time.monotonic() - started >= self.waiting.timeout_s:
                if self._timeouts % _WARN_EVERY == 0:
                    what = "no parameters followed a gradient within %g s; continuing without them"
                    logger.warning(what, self.waiting.timeout_s)
                self._timeouts += 1
                self._was_in_vain = True
                break
            self.listener.step()
            self._note_applied()
        else:
            self._was_in_vain = False
        self._waited_s += time.monotonic() - started

    def _note_applied(self) -> None:
        """Find out which gradients the loaded parameters include; assume all if a restarted server does not know."""
        message = self.listener.message
        if message != self._message:
            self._message = message
            applied = read_applied(message, self.sender.sender_id)
            self._applied = self._pushed if applied is None else min(applied, self._pushed)
