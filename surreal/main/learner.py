"""The learner process: draws batches from the replay, improves the model, broadcasts it, and writes checkpoints.

    python -m surreal.main.learner cartpole-dqn --run my-run --redis 127.0.0.1:6379

It also runs the collector, which brings logs and metrics of all processes into the run's folder.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext, suppress
from typing import Any

from surreal.distributed.telemetry.collector import Collector
from surreal.distributed.telemetry.heartbeats import live_processes
from surreal.errors import DivergedError, FolderError, StoppedError, SurrealError
from surreal.learner import Learner
from surreal.main.build.acting import build_model
from surreal.main.build.environments import build_spaces
from surreal.main.build.learning import build_broadcaster, build_checkpoints, build_learner, build_replay
from surreal.main.eval import EvaluationSession
from surreal.main.lockstep.session import LockstepSession
from surreal.main.offline import fill_replay, run_offline_learner
from surreal.main.process import registry
from surreal.main.process.arguments import parse
from surreal.main.process.ending.reasons import Counts
from surreal.main.process.role import RoleProcess, run_role
from surreal.main.process.roles import EVAL, LEARNER
from surreal.main.session.checkpointing import Checkpointing
from surreal.main.session.leading.describing import describe_run
from surreal.main.session.leading.own_folder import OwnFolder
from surreal.main.session.leading.torch_cache import keep_torch_out_of_tmp
from surreal.main.session.limits import Limits
from surreal.main.session.priorities import PrioritiesSaver
from surreal.main.session.publishing import Publishing
from surreal.main.session.ranks.following import follow_first_rank
from surreal.main.session.ranks.group import join_ranks
from surreal.main.session.ranks.replay import RankReplay
from surreal.main.session.rollback import Rollback
from surreal.main.session.score_sharing import ScoreCollector
from surreal.metrics import RateMeter
from surreal.replay import Replay
from surreal.utils.threads import Supervisor

logger = logging.getLogger("surreal.main.learner")  # __name__ is __main__ in a process of its own

_DEQUEUE_TIMEOUT_S = 0.2
_CHECK_INTERVAL_S = 0.1
_COLLECT_S = 0.1  #: of one wait for logs and metrics, and so of the end
_SCORES_INTERVAL_S = 1.0
#: How long evaluations elsewhere may take for their last round, s.
_EVALUATION_S = 15.0


class LearnerSession:
    """Everything that goes on around `Learner.optimize`: publishing, checkpoints, limits.

    Args:
        process: the frame.
        stack: closes what is opened here.
        collector: of the run's folder; where it has no room, the run ends.
    """

    def __init__(self, process: RoleProcess, stack: ExitStack, collector: Collector) -> None:
        config = self.config = process.config
        self._collector = collector
        self.process = process
        model = build_model(config, build_spaces(config))
        seed = int(process.rng().integers(2**31))
        self.replay: Replay[Any] = build_replay(config, process.replay, seed=seed)
        self._group, self._ranked = join_ranks(process, stack), None
        if self._group is not None:
            self._ranked = RankReplay(self._group.ranks, self.replay, version=lambda: self.broadcaster.version)
        self.learner: Learner = build_learner(config, model, self._ranked or self.replay)
        if self._ranked is not None:
            self._ranked.attach(self.learner)
        self.broadcaster = build_broadcaster(config, process.parameter_client, model, process.stop)
        stack.callback(self.broadcaster.close)
        stack.callback(self.replay.join, 5.0)
        stack.callback(self.replay.stop)
        store = build_checkpoints(config, process.run_dir)
        shared = (self.learner, self.replay, self.broadcaster)
        self.publishing = Publishing(config, process.parameter_client, model, *shared)
        self.checkpoints = Checkpointing(config, *shared, store)
        stack.callback(self.checkpoints.close)
        self.rollback = Rollback(self.learner, self.checkpoints, self.publishing)
        self.priorities = PrioritiesSaver(self.replay, process.run_dir)
        self.limits = Limits(config, is_timed=not process.arguments.supervised)
        self._checked_s = 0.0
        self._is_done = False
        self._rate = RateMeter("learner/updates_per_s")

    def begin(self) -> None:
        """Restore, take over the policy, and let everyone have the parameters."""
        is_resumed = self.process.arguments.resume or self.publishing.has_parameters()
        if not self.checkpoints.restore(is_resumed=is_resumed):
            self.publishing.take_over()
        self.checkpoints.begin()
        self.priorities.load()
        self._rate.begin(self.learner.updates)
        telemetry = self.process.telemetry
        for source in (self.learner.metrics, self.replay.metrics, self.broadcaster.metrics, self._metrics):
            telemetry.add_source(source)
        telemetry.add_histograms(self.learner.histograms.take)
        telemetry.watch(version=lambda: self.broadcaster.version, global_step=lambda: self.replay.global_step)
        self.publishing.begin(live_processes(self.process.client))

    def run(self) -> None:
        """Learn until the run ends, or this learner's updates are done.

        Raises:
            DivergedError: the learner diverged, and going back did not help.
            FolderError: the disk of the run's folder is full.
            RankError: another rank of the learner is gone.
        """
        self.replay.start_threads()
        with nullcontext() if self._group is None else self._group.explaining():
            self._learn()

    def end(self) -> None:
        """Hand out and keep what was learned last.

        Raises:
            DivergedError: as from `run`.
        """
        self.replay.stop()
        try:
            self.checkpoints.finish()
        except DivergedError as error:
            self.rollback.after(error)
        self.priorities.save()
        self.publishing.finish(is_connected=self.process.telemetry.is_connected)
        if self._ranked is not None:
            self._ranked.end()
        self.checkpoints.close()

    def counts(self) -> Counts:
        """How far the run came."""
        return Counts(self.replay.global_step, self.learner.updates, self.broadcaster.version)

    def give_up(self, error: SurrealError) -> None:
        """Have the run end for this reason; under a launcher, this process's exit code does that."""
        if self._ranked is not None:
            self._ranked.end()
        if not self.process.arguments.supervised:
            self._request_stop(f"learner failed: {error}")

    def _learn(self) -> None:
        i = 0
        while not self.process.should_stop() and not self._is_done:
            batch = (self._ranked or self.replay).dequeue(_DEQUEUE_TIMEOUT_S)
            try:
                if batch is not None:
                    self.learner.optimize(i, batch)
                    i += 1
                    self.publishing.after_update()
                    self.checkpoints.after_update()
                else:
                    self.publishing.while_waiting()
                self._check()
            except DivergedError as error:
                self.rollback.after(error)
                if self._ranked is not None:
                    self._ranked.take_over_anew()
            self.broadcaster.maintain()
            if reason := self.limits.updates_reason(self.learner.updates):
                self._request_stop(reason)
                return

    def _check(self) -> None:
        """See to what need not be seen to after each update."""
        now = time.monotonic()
        if now - self._checked_s < _CHECK_INTERVAL_S:
            return
        self._checked_s = now
        if (error := self._collector.disk_error) is not None:
            raise FolderError(f"{self.process.run_dir} cannot be written: {error}")
        self.checkpoints.save_if_due()
        self.priorities.save_if_due()
        if reason := self.limits.run_reason(self.replay.global_step):
            self._request_stop(reason)

    def _request_stop(self, reason: str) -> None:
        if self.config.replay.follow:  # the run is another learner's
            self._is_done = True
            logger.info("done: %s", reason)
            return
        client = self.process.client
        if self.process.telemetry.stop_reason is None:
            client.retry(lambda: registry.request_stop(client, reason), what="end the run", stop=self.process.stop)

    def _metrics(self) -> dict[str, float]:
        self._rate.total = self.learner.updates
        rollbacks = {"learner/rollbacks_total": float(self.rollback.count)}
        return {**self._rate.metrics(), **rollbacks, **self.publishing.metrics(), **self.checkpoints.metrics()}


def body(process: RoleProcess) -> None:
    """Learn until the run ends."""
    if process.rank:
        follow_first_rank(process)
        return
    with ExitStack() as stack:
        folder = None if process.arguments.supervised else OwnFolder(process)
        if folder is not None:
            stack.callback(folder.release)
        keep_torch_out_of_tmp(process.run_dir, stack)
        collector, scores = Collector(process.client, process.run_dir), None
        collecting = Supervisor("learner")
        process.at_end(lambda: _finish_collecting(process, collecting, collector))
        session: LearnerSession | LockstepSession
        if process.config.run.deterministic:
            is_scored = process.config.eval.enabled
            score = EvaluationSession(process, stack).score_newest if is_scored else lambda: False
            session = LockstepSession(process, stack, score)
        else:
            session = LearnerSession(process, stack, collector)
        if process.arguments.offline is not None:
            fill_replay(process, process.arguments.offline)
        session.begin()
        describe_run(process.config, process.client.run, process.run_dir)
        process.telemetry.add_source(collector.metrics)
        if folder is not None:
            folder.begin()
        collecting.spawn("collector", lambda: collector.step(_COLLECT_S))
        # A learner that follows has its run from another one; one in lockstep evaluates by itself.
        if not (process.config.replay.follow or process.config.run.deterministic):
            scores = ScoreCollector(process.client, process.run_dir / "eval")
            collecting.spawn("scores", lambda: _collect_scores(scores, collecting))
        try:
            _learn(session)
            if scores is not None:
                _wait_for_evaluation(process, scores)
        except Exception as error:
            if folder is not None:
                folder.finish(session.counts(), error)
            raise
        if folder is not None:
            folder.finish(session.counts())


def _learn(session: LearnerSession | LockstepSession) -> None:
    try:
        with suppress(StoppedError):
            session.run()
        session.end()
    except DivergedError as error:
        session.give_up(error)
        raise
    except FolderError as error:
        with suppress(SurrealError):
            session.end()  # what there is still room for
        session.give_up(error)
        raise


def _collect_scores(scores: ScoreCollector, collecting: Supervisor) -> None:
    scores.step()
    collecting.stop_event.wait(_SCORES_INTERVAL_S)


def _wait_for_evaluation(process: RoleProcess, scores: ScoreCollector) -> None:
    """Where the run ends, and no launcher sees to the order: let evaluation score the last parameters."""
    is_over = process.telemetry.stop_reason is not None and not process.arguments.supervised
    deadline = time.monotonic() + (_EVALUATION_S if is_over else 0.0)
    while time.monotonic() < deadline and process.telemetry.is_connected:
        if not any(beat.role == EVAL.counts_as for beat in live_processes(process.client)):
            break
        time.sleep(_CHECK_INTERVAL_S)
    scores.step()


def _finish_collecting(process: RoleProcess, supervisor: Supervisor, collector: Collector) -> None:
    supervisor.stop()
    supervisor.join(5.0)
    if not process.arguments.supervised:  # else the launcher does it, when all have ended
        collector.drain(2.0)
    collector.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run a learner process; returns its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    arguments = parse(LEARNER, given, (__doc__ or "").strip())

    def run(final: list[str]) -> int:
        return run_role(LEARNER, body, final, __doc__)

    if arguments.offline is None or arguments.supervised:  # a launcher has prepared everything
        return run(given)
    return run_offline_learner(arguments, given, run)


if __name__ == "__main__":
    sys.exit(main())
