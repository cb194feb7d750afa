"""PrioritiesSaver: a learner's priorities in a file of the run's folder, for the one that comes after it."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from surreal.base.errors import CheckpointError
from surreal.replay.prioritized import Prioritized

logger = logging.getLogger("surreal.run.roles.learner")

_NAME = "priorities"
#: They are saved this often, but never for more than a hundredth of the time.
_INTERVAL_S = 5.0
_SHARE = 0.01


class PrioritiesSaver:
    """Saves a replay's priorities every few seconds and reads them again; does nothing for a replay without any.

    Args:
        replay: of the learner.
        run_dir: the run's folder.
        rank: of the learner; each has a replay, and a file.
    """

    def __init__(self, replay: object, run_dir: Path, *, rank: int = 0) -> None:
        self._replay = replay if isinstance(replay, Prioritized) else None
        self._path = run_dir / f"{_NAME}{f'-rank-{rank}' if rank else ''}.safetensors"
        self._due_s = time.monotonic() + _INTERVAL_S

    def load(self) -> None:
        """Begin with what was saved, if there is anything that can be read."""
        if self._replay is None or not self._path.exists():
            return
        try:
            known = self._replay.load_priorities(self._path)
            logger.info("read the priorities of %d transitions", known)
        except CheckpointError as error:
            logger.warning("the replay begins with equal priorities: %s", error)

    def save_if_due(self) -> None:
        """Save them, if it is time."""
        if time.monotonic() >= self._due_s:
            self.save()

    def save(self) -> None:
        """Save them now; a failure is a warning."""
        if self._replay is None:
            return
        started_s = time.monotonic()
        try:
            self._replay.save_priorities(self._path)
        except CheckpointError as error:
            logger.warning("the replay's priorities were not saved: %s", error)
        ended_s = time.monotonic()
        self._due_s = ended_s + max(_INTERVAL_S, (ended_s - started_s) / _SHARE)
