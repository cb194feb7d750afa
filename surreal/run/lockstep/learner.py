"""LockstepLearner: acts and learns from one checkpoint to the next; it is made again for each."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from surreal.agent.loop import EpisodeCallback
from surreal.base.checkpoint import RunCheckpoints
from surreal.base.errors import CheckpointError, StoppedError
from surreal.distributed.experience.shards import load_shard, save_shard
from surreal.distributed.experience.stream import Stream
from surreal.learner import Learner
from surreal.replay import Replay
from surreal.replay.prioritized import Prioritized
from surreal.run.build.acting import build_model
from surreal.run.build.environments import build_spaces
from surreal.run.build.learning import build_broadcaster, build_learner, build_replay
from surreal.run.build.lockstep import lockstep_config, stretch_progress
from surreal.run.lockstep.actor import Actor, next_batch, take_in
from surreal.run.process.ending import Counts
from surreal.run.process.role import RoleProcess
from surreal.run.session.checkpointing import Checkpointing
from surreal.run.session.publishing import Publishing

#: Evaluations of a stretch: one at its beginning, the others while it lasts.
_ROUNDS = 5


class LockstepLearner:
    """Acts and learns from one checkpoint to the next: `run`, once.

    Args:
        process: the frame.
        store: store of the run's checkpoints.
        stack: closes what is opened here.
        on_episode: called with return, length and environment of each episode of the agents.
        is_resumed: whether checkpoints in the run's folder are its own.

    Raises:
        SurrealError: something cannot be made, or the checkpoint cannot be used.
    """

    def __init__(
        self,
        process: RoleProcess,
        store: RunCheckpoints,
        stack: ExitStack,
        on_episode: EpisodeCallback,
        *,
        is_resumed: bool,
    ) -> None:
        self._process, self._store = process, store
        begun = self._store.newest_step or 0
        config = self._config = lockstep_config(process.config, begun_updates=begun)
        _seed(config.seed)
        model = build_model(config, build_spaces(config))
        self.replay: Replay[Any] = build_replay(config, process.replay, seed=int(process.rng(begun).integers(2**31)))
        self.learner: Learner = build_learner(config, model, self.replay)
        self.broadcaster = build_broadcaster(config, process.parameter_client, model, process.stop)
        stack.callback(self.broadcaster.close)
        stack.callback(self.replay.join)
        stack.callback(self.replay.stop)
        shared = (self.learner, self.replay, self.broadcaster)
        self._publishing = Publishing(config, process.parameter_client, model, *shared)
        self._checkpoints = Checkpointing(process.config, *shared, self._store)
        self._publishing.on_publish = process.callbacks.on_broadcast
        self._checkpoints.on_save = process.callbacks.on_checkpoint
        self._checkpoints.restore(is_resumed=is_resumed)
        if begun and self.learner.updates != begun:
            raise CheckpointError(
                f"the newest checkpoint in {self._store.folder} cannot be used; "
                "`--set checkpoint.restore=NAME` continues from an earlier one"
            )
        self._clear()
        if begun:
            self._load_replay()
        self._checkpoints.begin()
        self._publishing.begin(())
        self._begun = self.counts()
        self._is_saved = False
        self._batches = 0
        self._actors = [Actor(process, config, stack, index, on_episode) for index in range(config.agent.count)]

    def run(self, score: Callable[[], bool]) -> bool:
        """Act and learn in turn, then write the checkpoint.

        Args:
            score: evaluates the newest parameters, a few times in each stretch; true ends the stretch.

        Returns:
            Whether `score` ended it.

        Raises:
            StoppedError: the process is to stop; nothing was written.
            DivergedError: the learner diverged.
            SurrealError: experience or checkpoint could not be stored.
        """
        self._learn()  # reads back what the replay held
        scored, has_reached_goal = 0, score()
        while not (has_reached_goal or self._is_over()):
            for actor in self._actors:
                actor.act(self._check_stop)
            self._learn()
            if scored < (due := int(_ROUNDS * self._progress)) < _ROUNDS:
                scored, has_reached_goal = due, score()
        for actor in self._actors:
            actor.end()
        self._learn()
        self._publishing.finish(is_connected=True)
        if self.count_unsaved():
            self._save()
        return has_reached_goal

    def counts(self) -> Counts:
        """Counts of the run so far."""
        learner = self.learner
        skipped = learner.skipped_updates
        return Counts(self.replay.global_step, learner.updates, self.broadcaster.version, skipped_updates=skipped)

    def count_unsaved(self) -> int:
        """Updates since the checkpoint."""
        return 0 if self._is_saved else self.learner.updates - self._begun.updates

    def metrics(self) -> dict[str, float]:
        """Metrics of all parts; of several agents, those of the first."""
        first = self._actors[0]
        sources = (
            *(self.learner.metrics, self.replay.metrics, self.broadcaster.metrics, self._publishing.metrics),
            *(first.loop.metrics, first.sender.metrics, first.pool.metrics, first.listener.metrics),
        )
        return {name: value for source in sources for name, value in source().items()}

    # -- a turn ------------------------------------------------------------------------------------------------------

    def _learn(self) -> None:
        """Take in what the agents have sent, and do all updates that this allows."""
        take_in(self.replay)
        while not self._has_max_updates() and (batch := next_batch(self.replay)) is not None:
            self._check_stop()
            self.learner.optimize(self._batches, batch)
            self._batches += 1
            self._process.callbacks.on_update(self.learner)
            self._publishing.after_update()
            self.broadcaster.maintain()

    @property
    def _progress(self) -> float:
        now, begun = self.counts(), self._begun
        return stretch_progress(self._config, now.updates - begun.updates, now.env_steps - begun.env_steps)

    def _is_over(self) -> bool:
        limit = self._config.run.max_env_steps
        has_all_steps = limit is not None and self.counts().env_steps >= limit
        return has_all_steps or self._has_max_updates() or self._progress >= 1.0

    def _has_max_updates(self) -> bool:
        limit = self._config.learner.max_updates
        return limit is not None and self.learner.updates >= limit

    def _check_stop(self) -> None:
        if self._process.should_stop():
            raise StoppedError("stopped between two checkpoints")

    # -- its checkpoint ----------------------------------------------------------------------------------------------

    @property
    def _stream(self) -> Stream:
        return self._process.replay.stream(0)

    def _clear(self) -> None:
        """Forget what an earlier or an interrupted stretch left in Redis."""
        self._stream.client.unlink(f"{self._stream.keys.prefix}*")
        parameters = self._process.parameter_client
        parameters.unlink(f"{parameters.policy_keys(self._config.broadcast.policy).prefix}*")

    def _save(self) -> None:
        """Write experience, priorities, and last the learner, with which all three count."""
        self.replay.stop()
        self.replay.join()  # what was evicted leaves Redis
        updates = self.learner.updates
        if self.replay.stream_mode == "window":
            save_shard(self._stream, self._replay_file(updates, "shard"))
        if isinstance(self.replay, Prioritized):
            self.replay.save_priorities(self._replay_file(updates, "priorities"))
        self._checkpoints.save()
        self._is_saved = True
        kept = {f"{step:010d}" for step in self._store.own_steps()}
        for path in self._replay_file(updates, "shard").parent.glob("*.safetensors"):
            if path.name.partition(".")[0] not in kept:
                path.unlink()

    def _load_replay(self) -> None:
        """Bring back the experience. On-policy, all was used: what a round had begun with was cut off with it."""
        updates = self.learner.updates
        if self.replay.stream_mode == "window":
            load_shard(self._stream, self._replay_file(updates, "shard"))
        if isinstance(self.replay, Prioritized):
            self.replay.load_priorities(self._replay_file(updates, "priorities"))

    def _replay_file(self, updates: int, what: str) -> Path:
        return self._process.run_dir / "replay" / f"{updates:010d}.{what}.safetensors"


def _seed(seed: int) -> None:
    """Seed the global generators of this process, for code that draws from them."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - a user's environment may draw from it
    torch.manual_seed(seed)
