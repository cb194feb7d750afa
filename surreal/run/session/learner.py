"""`LearnerSession`: the one loop of a learner: take a batch, update, publish, checkpoint, report.

The learner's process runs it as it is. A parameter server replaces where batches come from and what an update is
(`roles/parameter_server.py`); a deterministic run has a stepped intake and acts in between (`lockstep/learner.py`).
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, nullcontext
from typing import Any

from surreal.base.checkpoint import RunCheckpoints
from surreal.base.contracts import BatchIntake, BatchSource
from surreal.base.errors import DivergedError, FolderError, SurrealError
from surreal.base.metrics import RateMeter
from surreal.base.pytorch import Module
from surreal.config import Config
from surreal.distributed.calls import CallServer
from surreal.distributed.parameters.parts import PolicyPart
from surreal.distributed.telemetry.collector import Collector
from surreal.distributed.telemetry.heartbeats import live_processes
from surreal.learner import GradientLearner, Learner
from surreal.replay import Replay
from surreal.run.build.acting import build_keeper, build_model
from surreal.run.build.environments import build_spaces
from surreal.run.build.learning import build_broadcaster, build_checkpoints, build_learner, build_replay
from surreal.run.process.ending import Counts
from surreal.run.process.role import RoleProcess
from surreal.run.session.checkpointing import Checkpointing, PrioritiesSaver
from surreal.run.session.intake import ExperienceWaits, LearnerLimits, ThreadedIntake
from surreal.run.session.publishing import Publishing, Rollback
from surreal.run.session.ranks.group import RankGroup, join_ranks
from surreal.run.session.ranks.replay import RankReplay

logger = logging.getLogger(__name__)

_DEQUEUE_TIMEOUT_S = 0.2
_CHECK_INTERVAL_S = 0.1
#: How long calls wait for their turn where there is nothing to learn from, s.
_CALLS_TIMEOUT_S = 0.01


class LearnerSession:
    """A learner, where its batches come from, and everything that follows an update.

        session = LearnerSession(process, stack, config)
        session.begin()
        session.run()
        session.end()

    Args:
        collector: collector of the run's folder; where it has no room, the run ends. None where another process has it.
        store: store of checkpoints, which the caller closes; None: the run's own.
    """

    def __init__(
        self,
        process: RoleProcess,
        stack: ExitStack,
        config: Config,
        *,
        collector: Collector | None = None,
        store: RunCheckpoints | None = None,
    ) -> None:
        self.config = config
        self.process = process
        self.part: PolicyPart | None = None
        self._collector = collector
        self._group: RankGroup | None = None
        self._ranked: RankReplay | None = None
        model = build_model(config, build_spaces(config))
        self.learner, self.source, self.intake = self.make(model, stack)
        self.broadcaster = build_broadcaster(config, process.parameter_client, model, process.stop, part=self.part)
        stack.callback(self.learner.close)
        stack.callback(self.broadcaster.close)
        stack.callback(self.source.join, 5.0)
        stack.callback(self.source.stop)
        is_shared = store is not None
        store = store or build_checkpoints(config, process.run_dir, index=process.index if self.part else 0)
        parts = (self.learner, self.source, self.broadcaster)
        self.publishing = Publishing(config, process.parameter_client, model, *parts)
        self.checkpoints = Checkpointing(process.config, *parts, store)
        if not is_shared:
            stack.callback(self.checkpoints.close)
        self.publishing.on_publish = process.callbacks.on_broadcast
        self.checkpoints.on_save = process.callbacks.on_checkpoint
        self.league = build_keeper(config, process.parameter_client, process.run_dir, process.stop)
        self.rollback = Rollback(self.learner, self.checkpoints, self.publishing)
        self.priorities = PrioritiesSaver(self.source, process.run_dir)
        self.calls = CallServer(process.parameter_client, self.learner.remote_methods(), policy=config.broadcast.policy)
        self.limits = LearnerLimits(config, is_timed=not process.arguments.supervised)
        self._batches = 0
        self._checked_s = 0.0
        self._is_done = False
        self._rate = RateMeter("learner/updates_per_s")
        self._waits = ExperienceWaits(lambda: self.source.is_starved)

    # -- what other sessions replace ---------------------------------------------------------------------------------

    def make(self, model: Module, stack: ExitStack) -> tuple[Learner, BatchSource, BatchIntake]:
        seed = int(self.process.rng().integers(2**31))
        replay: Replay[Any] = build_replay(self.config, self.process.replay, seed=seed)
        self._group = join_ranks(self.process, stack)
        if self._group is None:
            return build_learner(self.config, model, replay), replay, ThreadedIntake(replay)
        self._ranked = RankReplay(self._group.ranks, replay, version=lambda: self.broadcaster.version)
        learner = build_learner(self.config, model, self._ranked)
        self._ranked.attach(learner)
        return learner, replay, self._ranked

    def settle(self, *, has_checkpoint: bool) -> None:
        if self.publishing.take_over(has_checkpoint=has_checkpoint) and not has_checkpoint:
            logger.warning(
                "no checkpoint to resume from: continuing from the parameters of version %d, without the state of the "
                "optimizers; checkpoint.checkpoint_time_interval sets how often one is written",
                self.learner.model.version,
            )

    def is_done(self) -> bool:
        return self.process.should_stop() or self._is_done

    def update(self, i: int, batch: Any) -> bool:
        """Update from batch number `i`; returns whether the parameters changed."""
        self.learner.optimize(i, batch)
        return True

    def after_turn(self, *, has_updated: bool) -> None:
        if has_updated:
            self.checkpoints.after_update()
        now = time.monotonic()
        if now - self._checked_s >= _CHECK_INTERVAL_S:
            self._checked_s = now
            self._check()

    def check_limits(self) -> None:
        """End the run when this learner's updates are done, also after it went back."""
        if reason := self.limits.updates_reason(self.learner.updates):
            self._request_stop(reason)
            self._is_done = True

    def go_back(self, error: DivergedError) -> None:
        """Restore a good state; raises `DivergedError` if there is none, or it was tried before."""
        self.rollback.after(error)
        if self._ranked is not None:
            self._ranked.take_over_again()

    # -- a run -------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Restore, take over the policy, and publish the parameters."""
        is_resumed = self.process.arguments.resume or self.publishing.has_parameters()
        self.settle(has_checkpoint=self.checkpoints.restore(is_resumed=is_resumed))
        self.checkpoints.begin()
        self.priorities.load()
        self._rate.begin(self.learner.updates)
        telemetry = self.process.telemetry
        for source in (self.learner.metrics, self.source.metrics, self.broadcaster.metrics, self._metrics):
            telemetry.add_source(source)
        if self.calls:
            telemetry.add_source(self.calls.metrics)
        telemetry.add_readings(self.learner.readings.take)
        telemetry.add_histograms(self.learner.histograms.take)
        telemetry.watch(version=lambda: self.broadcaster.version, global_step=lambda: self.source.global_step)
        if isinstance(self.learner, GradientLearner):
            seconds_left = None if self.intake.is_stepped else self._seconds_left
            self.learner.follow_run(keeps_waiting=lambda: not self.process.should_stop(), seconds_left=seconds_left)
        self.process.startup.watch_lease(self._lease_waited_s)
        self.publishing.begin(live_processes(self.process.client))
        if self.league is not None:
            self.league.begin()
            telemetry.add_source(self.league.metrics)
            self._step_league()  # the first version is from before the first env step
        self.process.startup.mark_restored()

    def run(self) -> None:
        """Learn until the run ends, or this learner's updates are done. Raises `DivergedError` if the learner diverged
        and going back did not help, `FolderError` if the disk is full, `RankError` if another rank is gone.
        """
        with nullcontext() if self._group is None else self._group.explaining():
            self.learn()

    def learn(self) -> None:
        """Update from batch after batch, until `is_done`, or until a stepped intake is empty."""
        # Of several parameter servers, the first answers calls. In a deterministic run there are none: an agent would
        # wait for its own thread.
        is_called = bool(self.calls) and self.process.index == 0 and not self.intake.is_stepped
        timeout_s = _CALLS_TIMEOUT_S if is_called else _DEQUEUE_TIMEOUT_S
        self.intake.take_in()
        while not self.is_done():
            batch = self._waits.take(self.intake.next_batch, timeout_s)
            if batch is None and self.intake.is_stepped:
                return
            if is_called:
                self.calls.serve()
            try:
                has_updated = batch is not None and self.update(self._batches, batch)
                if has_updated:
                    self._batches += 1
                    self.process.startup.mark_first_step()
                    self.process.callbacks.on_update(self.learner)
                    self.publishing.after_update()
                elif batch is None:
                    self.publishing.while_waiting()
                self.after_turn(has_updated=has_updated)
            except DivergedError as error:
                self.go_back(error)
            self.check_limits()
            self.broadcaster.maintain()

    def end(self) -> None:
        self.source.stop()
        try:
            self.checkpoints.finish()
        except DivergedError as error:
            self.go_back(error)
        self.priorities.save()
        self.publishing.finish(is_connected=self.process.telemetry.is_connected)
        if self.league is not None:
            self.league.finish()
        if self._ranked is not None:
            self._ranked.end()
        self.checkpoints.close()
        self.learner.check_learned()

    def counts(self) -> Counts:
        learner = self.learner
        return Counts(
            self.source.global_step,
            learner.updates,
            self.broadcaster.version,
            skipped_updates=learner.skipped_updates,
            compile_cpu_s=learner.compile_seconds[0],
            compile_saving_s=learner.compile_seconds[1],
        )

    def give_up(self, error: SurrealError) -> None:
        """End the run for this reason; under a launcher, this process's exit code does that."""
        if self._ranked is not None:
            self._ranked.end()
        if not self.process.arguments.supervised:
            self._request_stop(f"learner failed: {error}")

    def _check(self) -> None:
        if self._collector is not None and (error := self._collector.disk_error) is not None:
            raise FolderError(f"{self.process.run_dir} cannot be written: {error}")
        if self.process.checkpoint_request.take():
            logger.info("a checkpoint was asked for")
            self.checkpoints.finish()
        self.checkpoints.save_if_due()
        self.priorities.save_if_due()
        self._step_league()
        if reason := self.limits.run_reason(self.source.global_step):
            self._request_stop(reason)

    def _step_league(self) -> None:
        if self.league is not None:
            version, updates = self.broadcaster.version, self.learner.updates
            self.league.step(self.learner.model, version=version, env_steps=self.source.global_step, updates=updates)

    def _request_stop(self, reason: str) -> None:
        if self.config.replay.follow:  # the run is another learner's
            self._is_done = True
            logger.info("done: %s", reason)
            return
        if self.process.telemetry.stop_reason is None:
            self.process.request_stop(reason)

    def _seconds_left(self) -> float:
        return self.limits.seconds_left(self.learner.updates, self.source.global_step)

    def _lease_waited_s(self) -> float:
        metrics = {**self.source.metrics(), **self.broadcaster.metrics()}
        return sum(metrics.get(name, 0.0) for name in ("replay/lease_wait_s_total", "broadcast/lease_wait_s_total"))

    def _metrics(self) -> dict[str, float]:
        self._rate.total = self.learner.updates
        counts = {"learner/rollbacks_total": float(self.rollback.count), **self._waits.metrics()}
        return {**self._rate.metrics(), **counts, **self.publishing.metrics(), **self.checkpoints.metrics()}
