"""Rollback: the state that a diverged learner continues from, and the limit after which the run ends."""

from __future__ import annotations

import logging

from surreal.base.contracts import LearnerView
from surreal.base.errors import DivergedError
from surreal.base.pytorch import name_not_finite
from surreal.run.session.checkpointing import Checkpointing
from surreal.run.session.publishing import Publishing

logger = logging.getLogger("surreal.run.roles.learner")

#: Updates that a learner must do before it may go back once more.
GOOD_UPDATES = 1000


class Rollback:
    """Takes a diverged learner back to its newest good state. Counts of updates and versions never go back.

    Args:
        learner: the learner to restore.
        checkpoints: asked first.
        publishing: asked if there is no checkpoint; publishes what the learner continues with.

    Attributes:
        count: how often the learner went back.
    """

    def __init__(self, learner: LearnerView, checkpoints: Checkpointing, publishing: Publishing) -> None:
        self.count = 0
        self._learner = learner
        self._checkpoints = checkpoints
        self._publishing = publishing
        self._source = ""
        self._updates = 0

    def after(self, error: DivergedError) -> None:
        """Restore a good state, and publish the parameters that the learner continues with.

        Raises:
            DivergedError: the learner did so before, to the same checkpoint or too few updates ago; or there is nothing
                to go back to.
        """
        done = self._learner.updates - self._updates
        if self.count and done < GOOD_UPDATES:
            raise self._again(error, done) from error
        source = self._checkpoints.go_back() or self._publishing.go_back() or self._stay()
        if not source:
            raise DivergedError(f"{error}; there are no good parameters to go back to") from error
        if self.count and source == self._source:
            raise self._again(error, done) from error
        self.count += 1
        self._source, self._updates = source, self._learner.updates
        logger.warning("update %d: the learner diverged: %s; it goes back to %s", self._updates, error, source)
        self._publishing.publish()

    def _stay(self) -> str:
        """Continue with the present parameters, if they are good: then the optimizer's state diverged."""
        if not self._learner.is_ready or name_not_finite(self._learner.model.tensors()):
            return ""
        self._learner.rebuild()
        return "the parameters it has"

    def _again(self, error: DivergedError, done: int) -> DivergedError:
        return DivergedError(
            f"the learner diverged again, {done} updates after it went back to {self._source}: {error}"
        )
