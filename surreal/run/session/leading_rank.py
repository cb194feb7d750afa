"""The process of a run's learner or parameter server: collecting, scores, and the loop of updates."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Protocol

from surreal.base.errors import DivergedError, FolderError, StoppedError, SurrealError
from surreal.base.system.threads import Supervisor
from surreal.distributed.telemetry.collector import Collector
from surreal.distributed.telemetry.heartbeats import live_processes
from surreal.run.observers.feeding import SinkFeeder
from surreal.run.observers.making import make_feeder
from surreal.run.process.ending import Counts
from surreal.run.process.role import RoleProcess
from surreal.run.process.roles import EVAL
from surreal.run.session.learner_process import OwnFolder, describe_run, keep_torch_out_of_tmp
from surreal.run.session.offline import fill_replay
from surreal.run.session.score_sharing import ScoreCollector

logger = logging.getLogger("surreal.run.roles.learner")

_CHECK_INTERVAL_S = 0.1
_COLLECT_S = 0.1  #: of one wait for logs and metrics, and so of the end
_SCORES_INTERVAL_S = 1.0
_SINKS_INTERVAL_S = 1.0
#: How long evaluations elsewhere may take for their last round, s.
_EVALUATION_S = 15.0


class Session(Protocol):
    """Updates the parameters."""

    def begin(self) -> None:
        """Restore the newest state, and publish the parameters."""

    def run(self) -> None:
        """Improve them until the run ends."""

    def end(self) -> None:
        """Hand out and keep what was learned last."""

    def counts(self) -> Counts:
        """Counts of the run so far."""

    def give_up(self, error: SurrealError) -> None:
        """End the run for this reason."""


def lead(process: RoleProcess, make: Callable[[ExitStack, Collector], Session]) -> None:
    """Improve a run's parameters until it ends, and see to its folder: logs, metrics, scores, the result.

    Args:
        process: the frame.
        make: makes what improves them.
    """
    with ExitStack() as stack:
        folder = None if process.arguments.supervised else OwnFolder(process)
        if folder is not None:
            stack.callback(folder.release)
        keep_torch_out_of_tmp(process.run_dir, stack)
        collector, scores = Collector(process.client, process.run_dir), None
        feeder = None
        if process.config.sinks:
            names = {"run": process.client.run, "process": process.name}
            feeder = make_feeder(process.config, process.run_dir, is_last=folder is not None, **names)
        collecting = Supervisor("learner")
        process.at_end(lambda: _finish_collecting(process, collecting, collector, feeder))
        session = make(stack, collector)
        if process.arguments.offline is not None:
            fill_replay(process, process.arguments.offline)
        session.begin()
        describe_run(process.config, process.client.run, process.run_dir)
        process.telemetry.add_source(collector.metrics)
        if folder is not None:
            folder.begin()
        collecting.spawn("collector", lambda: collector.step(_COLLECT_S))
        if feeder is not None:
            collecting.spawn("sinks", lambda: _feed(feeder, collecting))
        # A learner that follows has its run from another one; one in lockstep evaluates by itself.
        if not (process.config.replay.follow or process.config.run.deterministic):
            scores = ScoreCollector(process.client, process.run_dir / "eval")
            collecting.spawn("scores", lambda: _collect_scores(scores, collecting))
        try:
            work(session)
            if scores is not None:
                _wait_for_evaluation(process, scores)
        except Exception as error:
            if folder is not None:
                folder.finish(session.counts(), error)
            raise
        if folder is not None:
            folder.finish(session.counts())


def work(session: Session) -> None:
    """Improve the parameters until the run ends, and keep what was learned.

    Raises:
        DivergedError, FolderError: what ended it; the run was told.
        SurrealError: as `Session.run`.
    """
    try:
        with suppress(StoppedError):
            session.run()
        session.end()
    except DivergedError as error:
        session.give_up(error)
        raise
    except FolderError as error:
        with suppress(SurrealError):
            session.end()  # saves what still fits
        session.give_up(error)
        raise


def _collect_scores(scores: ScoreCollector, collecting: Supervisor) -> None:
    scores.step()
    collecting.stop_event.wait(_SCORES_INTERVAL_S)


def _wait_for_evaluation(process: RoleProcess, scores: ScoreCollector) -> None:
    """Without a launcher, wait until evaluation has scored the last parameters."""
    is_over = process.telemetry.stop_reason is not None and not process.arguments.supervised
    deadline = time.monotonic() + (_EVALUATION_S if is_over else 0.0)
    while time.monotonic() < deadline and process.telemetry.is_connected:
        if not any(beat.role == EVAL.counts_as for beat in live_processes(process.client)):
            break
        time.sleep(_CHECK_INTERVAL_S)
    scores.step()


def _feed(feeder: SinkFeeder, collecting: Supervisor) -> None:
    if not feeder.step():
        collecting.stop_event.wait(_SINKS_INTERVAL_S)


def _finish_collecting(
    process: RoleProcess, supervisor: Supervisor, collector: Collector, feeder: SinkFeeder | None
) -> None:
    supervisor.stop()
    supervisor.join(5.0)
    if not process.arguments.supervised:  # else the launcher does it, when all have ended
        collector.drain(2.0)
    collector.close()
    if feeder is not None:
        feeder.close()
