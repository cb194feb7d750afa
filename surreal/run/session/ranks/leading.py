"""The processes of a learner: the first rank, or a parameter server, leads the run; the other ranks follow it.

`lead` collects logs, metrics and scores, and writes the result. `follow_first_rank` only does its part of each update.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Protocol

from surreal.base.errors import DivergedError, FolderError, StoppedError, SurrealError
from surreal.base.system.threads import Supervisor
from surreal.distributed.telemetry.collector import Collector
from surreal.distributed.telemetry.heartbeats import live_processes
from surreal.learner import Learner
from surreal.replay import Replay
from surreal.run.build.acting import build_model
from surreal.run.build.environments import build_spaces
from surreal.run.build.learning import build_learner, build_replay
from surreal.run.observers.making import SinkFeeder, make_feeder
from surreal.run.process.ending import Counts
from surreal.run.process.role import RoleProcess
from surreal.run.process.roles import EVAL
from surreal.run.session.checkpointing import PrioritiesSaver
from surreal.run.session.learner_process import OwnFolder, describe_run, keep_torch_out_of_tmp
from surreal.run.session.offline import fill_replay
from surreal.run.session.ranks.group import RankGroup, join_ranks
from surreal.run.session.ranks.replay import RankReplay
from surreal.run.session.score_sharing import ScoreCollector

logger = logging.getLogger(__name__)

_CHECK_INTERVAL_S = 0.1
_COLLECT_S = 0.1  #: of one wait for logs and metrics, and so of the end
_SCORES_INTERVAL_S = 1.0
_SINKS_INTERVAL_S = 1.0
#: How long evaluations elsewhere may take for their last round, s.
_EVALUATION_S = 15.0
_DEQUEUE_TIMEOUT_S = 0.2
#: How long rank 0 may take to learn what all processes of the run are told, s.
_OWN_END_S = 5.0


class LeadSession(Protocol):
    """The session of a process that leads: a learner, its rank 0, or a parameter server."""

    def begin(self) -> None: ...
    def run(self) -> None: ...
    def end(self) -> None: ...
    def counts(self) -> Counts: ...
    def give_up(self, error: SurrealError) -> None: ...


def lead(process: RoleProcess, make: Callable[[ExitStack, Collector], LeadSession]) -> None:
    """Improve a run's parameters until it ends, and see to its folder: logs, metrics, scores, the result."""
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


def work(session: LeadSession) -> None:
    """Improve the parameters until the run ends, and save them; raises as `LeadSession.run`, and tells the run."""
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


class OwnEnd:
    """Detects that this process was told to end and rank 0 was not, so that rank 0 can end all ranks."""

    def __init__(self, stop: threading.Event, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stop = stop
        self._clock = clock
        self._since_s: float | None = None

    def __call__(self) -> bool:
        if not self._stop.is_set():
            return False
        if self._since_s is None:
            self._since_s = self._clock()
        return self._clock() - self._since_s >= _OWN_END_S


def follow_first_rank(process: RoleProcess) -> None:
    """Learn with the other ranks until the end; rank 0 publishes, and writes checkpoints."""
    with ExitStack() as stack:
        keep_torch_out_of_tmp(process.run_dir, stack)
        if (group := join_ranks(process, stack)) is not None:
            with group.explaining():
                _follow(process, group, stack)


def _follow(process: RoleProcess, group: RankGroup, stack: ExitStack) -> None:
    config, rank = process.config, process.rank
    model = build_model(config, build_spaces(config))
    replay: Replay[Any] = build_replay(config, process.replay, seed=int(process.rng().integers(2**31)), rank=rank)
    stack.callback(replay.join, 5.0)
    stack.callback(replay.stop)
    batches = RankReplay(group.ranks, replay, stop=OwnEnd(process.stop))
    learner = build_learner(config, model, batches, rank=rank)
    batches.attach(learner)
    priorities = PrioritiesSaver(replay, process.run_dir, rank=rank)
    priorities.load()
    process.telemetry.add_source(learner.metrics)
    process.telemetry.add_readings(learner.readings.take)
    process.telemetry.add_source(replay.metrics)
    batches.take_in()
    with suppress(StoppedError):
        _learn(process, batches, learner, priorities)
    replay.stop()
    priorities.save()


def _learn(process: RoleProcess, batches: RankReplay, learner: Learner, priorities: PrioritiesSaver) -> None:
    i = 0
    while True:
        process.turn()
        if (batch := batches.next_batch(_DEQUEUE_TIMEOUT_S)) is not None:
            try:
                learner.optimize(i, batch)
            except DivergedError as error:
                batches.after(error)
            i += 1
        priorities.save_if_due()
