"""LockstepLearner: acts and learns from one checkpoint to the next; it is made again for each."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch

from surreal.agent.loop import EpisodeCallback
from surreal.base.checkpoint import RunCheckpoints
from surreal.base.contracts import BatchIntake, BatchSource
from surreal.base.errors import CheckpointError, DivergedError, StoppedError
from surreal.base.pytorch import Module
from surreal.distributed.experience.shards import load_shard, save_shard
from surreal.distributed.experience.stream import Stream
from surreal.learner import Learner
from surreal.replay.prioritized import Prioritized
from surreal.run.build.learning import build_learner, build_replay
from surreal.run.build.lockstep import interval_progress, lockstep_config
from surreal.run.lockstep.actor import Actor
from surreal.run.process.ending import Counts
from surreal.run.process.role import RoleProcess
from surreal.run.session.intake import SteppedIntake
from surreal.run.session.learner import LearnerSession

#: Evaluations of a checkpoint interval: one at its beginning, the others while it lasts.
_ROUNDS = 5


class LockstepLearner(LearnerSession):
    """Acts and learns in turn from one checkpoint to the next: `begin`, `run` and `end`, once each.

    Args:
        on_episode: called with return, length and environment of each episode of the agents.
        score: evaluates the newest parameters, a few times in each interval; true ends the interval.
        is_resumed: whether checkpoints in the run's folder are its own.
    """

    def __init__(
        self,
        process: RoleProcess,
        stack: ExitStack,
        store: RunCheckpoints,
        on_episode: EpisodeCallback,
        score: Callable[[], bool],
        *,
        is_resumed: bool,
    ) -> None:
        self.has_reached_goal = False  #: whether `score` ended the interval
        self._store, self._stack = store, stack
        self._on_episode, self._score = on_episode, score
        self._is_resumed = is_resumed
        self._begun_updates = store.newest_step or 0
        config = lockstep_config(process.config, begun_updates=self._begun_updates)
        random.seed(config.seed)  # the global generators, for code that draws from them
        np.random.seed(config.seed)  # noqa: NPY002 - a user's environment may draw from it
        torch.manual_seed(config.seed)
        super().__init__(process, stack, config, store=store)
        self._begun = Counts()
        self._is_saved = False
        self._actors: list[Actor] = []

    def make(self, model: Module, stack: ExitStack) -> tuple[Learner, BatchSource, BatchIntake]:
        seed = int(self.process.rng(self._begun_updates).integers(2**31))
        self._replay = replay = build_replay(self.config, self.process.replay, seed=seed)
        return build_learner(self.config, model, replay), replay, SteppedIntake(replay)

    def begin(self) -> None:
        self.checkpoints.restore(is_resumed=self._is_resumed)
        if self._begun_updates and self.learner.updates != self._begun_updates:
            problem = f"the newest checkpoint in {self._store.folder} cannot be used"
            raise CheckpointError(f"{problem}; `--set checkpoint.restore=NAME` continues from an earlier one")
        self._clear()
        if self._begun_updates:
            self._load_replay()
        self.checkpoints.begin()
        self.publishing.begin(())
        self._begun = self.counts()
        count = self.config.agent.count
        self._actors = [Actor(self.process, self.config, self._stack, i, self._on_episode) for i in range(count)]

    def run(self) -> None:
        """Act and learn in turn; raises `StoppedError`, `DivergedError`, or another `SurrealError`."""
        self.learn()  # reads back what the replay held
        scored, self.has_reached_goal = 0, self._score()
        while not (self.has_reached_goal or self._is_over()):
            for actor in self._actors:
                actor.act(self._check_stop)
            self.learn()
            if scored < (due := int(_ROUNDS * self._progress)) < _ROUNDS:
                scored, self.has_reached_goal = due, self._score()

    def end(self) -> None:
        """Learn from the last steps, and write the checkpoint; raises as `run` does."""
        for actor in self._actors:
            actor.end()
        self.learn()
        self.publishing.finish(is_connected=True)
        if self.count_unsaved():
            self._save()

    def is_done(self) -> bool:
        limit = self.config.learner.max_updates
        return limit is not None and self.learner.updates >= limit

    def update(self, i: int, batch: object) -> bool:
        self._check_stop()
        return super().update(i, batch)

    def check_limits(self) -> None:
        """Leave limits to the end of the interval."""

    def after_turn(self, *, has_updated: bool) -> None:
        """Leave checkpoint and limits to the end of the interval."""

    def go_back(self, error: DivergedError) -> None:
        """Raise the error: the same updates would diverge again."""
        raise error

    def count_unsaved(self) -> int:
        return 0 if self._is_saved else self.learner.updates - self._begun.updates

    def metrics(self) -> dict[str, float]:
        """Metrics of all parts; of several agents, those of the first."""
        first = self._actors[0]
        sources = (
            *(self.learner.metrics, self.source.metrics, self.broadcaster.metrics, self.publishing.metrics),
            *(first.loop.metrics, first.sender.metrics, first.pool.metrics, first.listener.metrics),
        )
        return {name: value for source in sources for name, value in source().items()}

    @property
    def _progress(self) -> float:
        now, begun = self.counts(), self._begun
        return interval_progress(self.config, now.updates - begun.updates, now.env_steps - begun.env_steps)

    def _is_over(self) -> bool:
        limit = self.config.run.max_env_steps
        has_all_steps = limit is not None and self.counts().env_steps >= limit
        return has_all_steps or self.is_done() or self._progress >= 1.0

    def _check_stop(self) -> None:
        if self.process.should_stop():
            raise StoppedError("stopped between two checkpoints")

    # -- its checkpoint ----------------------------------------------------------------------------------------------

    @property
    def _stream(self) -> Stream:
        return self.process.replay.stream(0)

    def _clear(self) -> None:
        """Delete data that an earlier or interrupted interval left in Redis."""
        self._stream.client.unlink(f"{self._stream.keys.prefix}*")
        parameters = self.process.parameter_client
        parameters.unlink(f"{parameters.policy_keys(self.config.broadcast.policy).prefix}*")

    def _save(self) -> None:
        """Write experience, priorities, and last the learner, with which all three count."""
        self._replay.stop()
        self._replay.join()  # what was evicted leaves Redis
        updates = self.learner.updates
        if self._replay.stream_mode == "window":
            save_shard(self._stream, self._replay_file(updates, "shard"))
        if isinstance(self._replay, Prioritized):
            self._replay.save_priorities(self._replay_file(updates, "priorities"))
        self.checkpoints.save()
        self._is_saved = True
        kept = {f"{step:010d}" for step in self._store.own_steps()}
        for path in self._replay_file(updates, "shard").parent.glob("*.safetensors"):
            if path.name.partition(".")[0] not in kept:
                path.unlink()

    def _load_replay(self) -> None:
        """Bring back the experience. On-policy, all was used: what a round had begun with was cut off with it."""
        updates = self.learner.updates
        if self._replay.stream_mode == "window":
            load_shard(self._stream, self._replay_file(updates, "shard"))
        if isinstance(self._replay, Prioritized):
            self._replay.load_priorities(self._replay_file(updates, "priorities"))

    def _replay_file(self, updates: int, what: str) -> Path:
        return self.process.run_dir / "replay" / f"{updates:010d}.{what}.safetensors"
