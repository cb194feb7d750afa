"""The learner process: draws batches from the replay, improves the model, broadcasts it, and writes checkpoints.

    python -m surreal.run.roles.learner cartpole-dqn --run my-run --redis 127.0.0.1:6379

It also runs the collector, which brings logs and metrics of all processes into the run's folder.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from typing import Any

from surreal.base.contracts import BatchSource
from surreal.base.errors import DivergedError, FolderError, SurrealError
from surreal.base.metrics import RateMeter
from surreal.base.pytorch import Module
from surreal.config import Config
from surreal.distributed.calls import CallServer
from surreal.distributed.parameters.published import PolicyPart
from surreal.distributed.telemetry.collector import Collector
from surreal.distributed.telemetry.heartbeats import live_processes
from surreal.learner import Learner
from surreal.replay import Replay
from surreal.run.build.acting import build_model
from surreal.run.build.environments import build_spaces
from surreal.run.build.learning import build_broadcaster, build_checkpoints, build_learner, build_replay
from surreal.run.build.self_play import build_keeper
from surreal.run.lockstep.check import try_update
from surreal.run.lockstep.session import LockstepSession
from surreal.run.process.arguments import parse
from surreal.run.process.ending import Counts
from surreal.run.process.role import RoleProcess, run_role
from surreal.run.process.roles import LEARNER
from surreal.run.process.run_folder import RunFolder
from surreal.run.roles.eval import EvaluationSession
from surreal.run.session.checkpointing import Checkpointing, PrioritiesSaver
from surreal.run.session.leading_rank import lead
from surreal.run.session.learner_process import set_torch_threads
from surreal.run.session.offline import run_offline_learner
from surreal.run.session.publishing import Publishing
from surreal.run.session.ranks.following import follow_first_rank
from surreal.run.session.ranks.group import RankGroup, join_ranks
from surreal.run.session.ranks.replay import RankReplay
from surreal.run.session.rollback import Rollback
from surreal.run.session.waiting import ExperienceWaits, Limits

logger = logging.getLogger("surreal.run.roles.learner")  # __name__ is __main__ in a separate process

_DEQUEUE_TIMEOUT_S = 0.2
_CHECK_INTERVAL_S = 0.1
#: How long calls wait for their turn where there is nothing to learn from, s.
_CALLS_TIMEOUT_S = 0.01


class LearnerSession:
    """Everything that continues around `Learner.optimize`: publishing, checkpoints, limits.

    A parameter server has the same around its steps; it gives `make` and `update`.

    Args:
        process: the frame.
        stack: closes what is opened here.
        collector: collector of the run's folder; where it has no room, the run ends. None where another process has it.
        config: config of the run, or what this process changes in it.
    """

    def __init__(self, process: RoleProcess, stack: ExitStack, collector: Collector | None, config: Config) -> None:
        self.config = config
        self._collector = collector
        self.process = process
        self.part: PolicyPart | None = None
        model = build_model(config, build_spaces(config))
        self._group: RankGroup | None = None
        self._ranked: RankReplay | None = None
        self.learner, self.replay = self.make(model, stack)
        self.broadcaster = build_broadcaster(config, process.parameter_client, model, process.stop, part=self.part)
        stack.callback(self.broadcaster.close)
        stack.callback(self.replay.join, 5.0)
        stack.callback(self.replay.stop)
        store = build_checkpoints(config, process.run_dir, index=process.index if self.part else 0)
        shared = (self.learner, self.replay, self.broadcaster)
        self.publishing = Publishing(config, process.parameter_client, model, *shared)
        self.checkpoints = Checkpointing(config, *shared, store)
        stack.callback(self.checkpoints.close)
        self.publishing.on_publish = process.callbacks.on_broadcast
        self.checkpoints.on_save = process.callbacks.on_checkpoint
        self.league = build_keeper(config, process.parameter_client, process.run_dir, process.stop)
        self.rollback = Rollback(self.learner, self.checkpoints, self.publishing)
        self.priorities = PrioritiesSaver(self.replay, process.run_dir)
        self.calls = CallServer(process.parameter_client, self.learner.remote_methods(), policy=config.broadcast.policy)
        self.limits = Limits(config, is_timed=not process.arguments.supervised)
        self._checked_s = 0.0
        self._is_done = False
        self._rate = RateMeter("learner/updates_per_s")
        self._waits = ExperienceWaits(lambda: self.replay.is_starved)

    def make(self, model: Module, stack: ExitStack) -> tuple[Learner, BatchSource]:
        """Make what improves the model, and what that results from."""
        seed = int(self.process.rng().integers(2**31))
        replay: Replay[Any] = build_replay(self.config, self.process.replay, seed=seed)
        self._group = join_ranks(self.process, stack)
        if self._group is not None:
            self._ranked = RankReplay(self._group.ranks, replay, version=lambda: self.broadcaster.version)
        learner = build_learner(self.config, model, self._ranked or replay)
        if self._ranked is not None:
            self._ranked.attach(learner)
        return learner, replay

    def update(self, i: int, batch: Any) -> bool:
        """Update from batch number `i`; returns whether the parameters changed."""
        self.learner.optimize(i, batch)
        return True

    def go_back(self, error: DivergedError) -> None:
        """Restore a good state.

        Raises:
            DivergedError: there is none, or it was tried before.
        """
        self.rollback.after(error)

    def begin(self) -> None:
        """Restore, take over the policy, and publish the parameters."""
        is_resumed = self.process.arguments.resume or self.publishing.has_parameters()
        self.settle(has_checkpoint=self.checkpoints.restore(is_resumed=is_resumed))
        self.checkpoints.begin()
        self.priorities.load()
        self._rate.begin(self.learner.updates)
        telemetry = self.process.telemetry
        for source in (self.learner.metrics, self.replay.metrics, self.broadcaster.metrics, self._metrics):
            telemetry.add_source(source)
        if self.calls:
            telemetry.add_source(self.calls.metrics)
        telemetry.add_readings(self.learner.readings.take)
        telemetry.add_histograms(self.learner.histograms.take)
        telemetry.watch(version=lambda: self.broadcaster.version, global_step=lambda: self.replay.global_step)
        self.process.startup.watch_lease(self._lease_waited_s)
        self.publishing.begin(live_processes(self.process.client))
        if self.league is not None:
            self.league.begin()
            telemetry.add_source(self.league.metrics)
        self.process.startup.mark_restored()

    def settle(self, *, has_checkpoint: bool) -> None:
        """Decide which parameters to continue from."""
        if self.publishing.take_over(has_checkpoint=has_checkpoint) and not has_checkpoint:
            logger.warning(
                "no checkpoint to resume from: continuing from the parameters of version %d, without the state of the "
                "optimizers; checkpoint.checkpoint_time_interval sets how often one is written",
                self.learner.model.version,
            )

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
            DivergedError: as from `run`, or nothing was learned.
        """
        self.replay.stop()
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
        """Counts of the run so far."""
        learner = self.learner
        skipped = learner.skipped_updates
        return Counts(self.replay.global_step, learner.updates, self.broadcaster.version, skipped_updates=skipped)

    def give_up(self, error: SurrealError) -> None:
        """End the run for this reason; under a launcher, this process's exit code does that."""
        if self._ranked is not None:
            self._ranked.end()
        if not self.process.arguments.supervised:
            self._request_stop(f"learner failed: {error}")

    def _learn(self) -> None:
        i, timeout_s = 0, _CALLS_TIMEOUT_S if self._is_called else _DEQUEUE_TIMEOUT_S
        while not self.process.should_stop() and not self._is_done:
            batch = self._waits.take((self._ranked or self.replay).dequeue, timeout_s)
            if self._is_called:
                self.calls.serve()
            try:
                if batch is not None and self.update(i, batch):
                    i += 1
                    self.process.startup.mark_first_step()
                    self.process.callbacks.on_update(self.learner)
                    self.publishing.after_update()
                    self.checkpoints.after_update()
                elif batch is None:
                    self.publishing.while_waiting()
                self._check()
            except DivergedError as error:
                self.go_back(error)
                if self._ranked is not None:
                    self._ranked.take_over_anew()
            self.broadcaster.maintain()
            if reason := self.limits.updates_reason(self.learner.updates):
                self._request_stop(reason)
                return

    @property
    def _is_called(self) -> bool:
        """Whether it answers calls: of several parameter servers, the first does."""
        return bool(self.calls) and self.process.index == 0

    def _check(self) -> None:
        """See to what need not be seen to after each update."""
        now = time.monotonic()
        if now - self._checked_s < _CHECK_INTERVAL_S:
            return
        self._checked_s = now
        if self._collector is not None and (error := self._collector.disk_error) is not None:
            raise FolderError(f"{self.process.run_dir} cannot be written: {error}")
        if self.process.checkpoint_request.take():
            logger.info("a checkpoint was asked for")
            self.checkpoints.finish()
        self.checkpoints.save_if_due()
        self.priorities.save_if_due()
        if self.league is not None:
            version, updates = self.broadcaster.version, self.learner.updates
            self.league.step(self.learner.model, version=version, env_steps=self.replay.global_step, updates=updates)
        if reason := self.limits.run_reason(self.replay.global_step):
            self._request_stop(reason)

    def _request_stop(self, reason: str) -> None:
        if self.config.replay.follow:  # the run is another learner's
            self._is_done = True
            logger.info("done: %s", reason)
            return
        if self.process.telemetry.stop_reason is None:
            self.process.request_stop(reason)

    def _lease_waited_s(self) -> float:
        metrics = {**self.replay.metrics(), **self.broadcaster.metrics()}
        return sum(metrics.get(name, 0.0) for name in ("replay/lease_wait_s_total", "broadcast/lease_wait_s_total"))

    def _metrics(self) -> dict[str, float]:
        self._rate.total = self.learner.updates
        counts = {"learner/rollbacks_total": float(self.rollback.count), **self._waits.metrics()}
        return {**self._rate.metrics(), **counts, **self.publishing.metrics(), **self.checkpoints.metrics()}


def body(process: RoleProcess) -> None:
    """Learn until the run ends."""
    set_torch_threads(process.config.learner)
    if process.rank:
        follow_first_rank(process)
        return
    # A launcher has checked it, as has an earlier life of this run.
    if not process.arguments.supervised and not RunFolder(process.run_dir).config_path.exists():
        try_update(process.config)

    def make(stack: ExitStack, collector: Collector) -> LearnerSession | LockstepSession:
        if not process.config.run.deterministic:
            return LearnerSession(process, stack, collector, process.config)
        score = EvaluationSession(process, stack).score_newest if process.config.eval.enabled else lambda: False
        return LockstepSession(process, stack, score)

    lead(process, make)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a learner process; returns its exit code."""
    arguments = parse(LEARNER, argv)
    if arguments.offline is None or arguments.supervised:  # a launcher has prepared everything
        return run_role(LEARNER, body, arguments)
    return run_offline_learner(arguments, lambda final: run_role(LEARNER, body, final))


if __name__ == "__main__":
    sys.exit(main())
