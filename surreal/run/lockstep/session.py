"""LockstepSession: a run in lockstep from its beginning, or its newest checkpoint, to its end."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import ExitStack

import torch

from surreal.base.errors import SurrealError
from surreal.base.metrics import EpisodeStatistics, RateMeter, Reading
from surreal.run.build.learning import build_checkpoints
from surreal.run.lockstep.learner import LockstepLearner
from surreal.run.process.ending import Counts
from surreal.run.process.role import RoleProcess
from surreal.run.session.intake import LearnerLimits

logger = logging.getLogger(__name__)


class LockstepSession:
    """A run's checkpoint intervals, one after another; `score` evaluates, and returns whether the goal is reached."""

    def __init__(self, process: RoleProcess, stack: ExitStack, score: Callable[[], bool]) -> None:
        self.process = process
        self._limits = LearnerLimits(process.config, is_timed=not process.arguments.supervised)
        self._score_newest = score
        self._episodes = EpisodeStatistics("agent")
        self._rates = RateMeter("agent/env_steps_per_s"), RateMeter("learner/updates_per_s")
        self._learner: LockstepLearner | None = None
        self._counts = Counts()
        self._scored_version = 0
        self._readings: list[Reading] = []
        self._store = build_checkpoints(process.config, process.run_dir)
        stack.callback(self._store.finish, process.config.checkpoint.upload_timeout_s)
        self._stack = stack.enter_context(ExitStack())

    def begin(self) -> None:
        # Torch refuses operations that are not deterministic, as some are on a GPU.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA is first used
        torch.set_deterministic_debug_mode("error")  # `use_deterministic_algorithms`, without importing a compiler
        torch.backends.cudnn.benchmark = False
        first = self._next(is_resumed=self.process.arguments.resume)
        for meter, total in zip(self._rates, first.counts()[:2], strict=True):
            meter.begin(total)
        telemetry = self.process.telemetry
        telemetry.add_source(self._episodes.metrics)
        telemetry.add_source(self._metrics)
        telemetry.add_readings(self._take_readings)
        telemetry.add_histograms(lambda: {} if self._learner is None else self._learner.learner.histograms.take())
        telemetry.watch(version=lambda: self.counts().version, global_step=lambda: self.counts().env_steps)

    def run(self) -> None:
        while not self._run_interval():
            self._next(is_resumed=True)
        self.process.telemetry.step()  # hears why the run ends, which without a launcher is the result's reason

    def end(self) -> None:
        """Explain what an interrupted run will do again; raises `DivergedError` if nothing was learned since."""
        if self._learner is not None:
            if lost := self._learner.count_unsaved():
                logger.warning("%d updates since the last checkpoint are dropped; --resume does them again", lost)
            self._learner.learner.check_learned()

    def counts(self) -> Counts:
        if self._learner is not None:
            self._counts = self._learner.counts()
        return self._counts

    def give_up(self, error: SurrealError) -> None:
        """End the run for this reason; under a launcher, this process's exit code does that."""
        if not self.process.arguments.supervised:
            self.process.request_stop(f"learner failed: {error}")

    def _next(self, *, is_resumed: bool) -> LockstepLearner:
        self.counts()
        self._readings = self._take_readings()
        self._learner = None
        self._stack.close()
        learner = LockstepLearner(
            self.process, self._stack, self._store, self._add_episode, self._score, is_resumed=is_resumed
        )
        learner.begin()
        self._learner = learner
        return learner

    def _run_interval(self) -> bool:
        learner = self._learner
        if learner is None:
            return True
        learner.run()
        learner.end()
        if learner.has_reached_goal:
            return True
        counts = self.counts()
        reason = self._limits.updates_reason(counts.updates) or self._limits.run_reason(counts.env_steps)
        if reason and not self._score():
            self.process.request_stop(reason)
        return bool(reason)

    def _score(self) -> bool:
        """Evaluate the newest parameters, unless that was done; returns whether they reach the goal and end the run."""
        version = self.counts().version
        if version == self._scored_version:
            return False
        self._scored_version = version
        return self._score_newest()

    def _add_episode(self, episode_return: float, length: int, env_id: int) -> None:
        self._episodes.add(episode_return, length, env_id)
        self.process.callbacks.on_episode(episode_return, length)

    def _metrics(self) -> dict[str, float]:
        """Metrics of the present interval, with rates over all of them; on the telemetry's thread."""
        learner, values = self._learner, dict[str, float]()
        for meter, total in zip(self._rates, self.counts()[:2], strict=True):
            meter.total = total
            values |= meter.metrics()
        values |= self._store.metrics()
        return values if learner is None else {**learner.metrics(), **values}

    def _take_readings(self) -> list[Reading]:
        """Metrics of the updates since the last call, including those of earlier intervals."""
        learner, (kept, self._readings) = self._learner, (self._readings, [])
        return kept if learner is None else kept + learner.learner.readings.take()
