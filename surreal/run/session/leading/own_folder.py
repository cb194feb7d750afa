"""The run folder of a learner that no launcher started: the learner is its writer, and says how it ended."""

from __future__ import annotations

import logging
import time

from surreal.base.errors import CheckpointError
from surreal.run.build.earlier import go_back
from surreal.run.process.ending import Counts, result_of
from surreal.run.process.role import RoleProcess
from surreal.run.process.run_folder import RunFolder
from surreal.run.session.scoring.best import read_best

logger = logging.getLogger(__name__)


class OwnFolder:
    """Claims the folder of a learner: `begin` when nothing can refuse any more, `finish` at the end, then `release`.

    Args:
        process: of the learner.

    Raises:
        BusyError: another process writes there.
        CheckpointError: the run is to go on from one of its checkpoints that is not there.
    """

    def __init__(self, process: RoleProcess) -> None:
        self._process = process
        self._started, self._started_s = time.time(), time.monotonic()
        self._folder = RunFolder(process.run_dir)
        self._folder.claim()
        try:
            self._go_back()
        except CheckpointError:
            self._folder.release()
            raise

    def begin(self) -> None:
        """Write down that the run begins, or goes on."""
        self._folder.begin(self._process.config, self._process.client.run, self._started)

    def finish(self, counts: Counts, error: Exception | None = None) -> None:
        """Write down how it ended."""
        result = result_of(
            self._process.config,
            self._process.client.run,
            self._process.ending(error),
            started=self._started,
            time_s=self._folder.earlier_s + time.monotonic() - self._started_s,
            counts=counts,
            best=read_best(self._folder.path / "eval"),
        )
        self._folder.write_result(result)

    def release(self) -> None:
        """Let another writer in."""
        self._folder.release()

    def _go_back(self) -> None:
        """Make the checkpoint that a resumed run is to go on from its newest one."""
        if self._process.arguments.resume and (words := go_back(self._process.config, self._process.run_dir)):
            logger.info("%s", words)
