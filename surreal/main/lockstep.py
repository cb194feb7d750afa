"""A run in lockstep (`run.deterministic`): one process acts, learns and evaluates in turn, by counts and never by time.

It is the learner's process, and everything in it is what other runs are made of. A turn:

    each agent acts until its round (or chunk) is in the stream
    the replay takes it in, and the learner does all updates that the samples-per-insert ratio allows
    the agents take over the newest parameters

A run is a row of **stretches**, each from one checkpoint to the next. A stretch is made anew of its checkpoint's files,
the run's seed and their number of updates, whether the run was interrupted or not: so it cannot matter. Episodes under
way are cut (truncated) at its end. An interrupted stretch is thrown away, and played again by `--resume`.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from surreal.agent import AgentLoop, Rounds
from surreal.config import Config
from surreal.distributed.experience.snapshot import clear, load_shard, save_shard
from surreal.errors import CheckpointError, ReplayFullError, StoppedError, SurrealError
from surreal.learner import Learner
from surreal.main.build.acting import build_agent, build_listener, build_model, build_sender
from surreal.main.build.environments import Spaces, build_pool, build_spaces
from surreal.main.build.learning import build_broadcaster, build_checkpoints, build_learner, build_replay
from surreal.main.build.lockstep import lockstep_config, stretch_progress, turn_rows
from surreal.main.eval import EvaluationSession
from surreal.main.process import registry
from surreal.main.process.ending.reasons import Counts
from surreal.main.process.role import RoleProcess, role_rng
from surreal.main.process.roles import RandomStream
from surreal.main.session.checkpointing import Checkpointing
from surreal.main.session.limits import Limits
from surreal.main.session.publishing import Publishing
from surreal.metrics import EpisodeStatistics, RateMeter
from surreal.replay import PrioritizedReplay, Replay
from surreal.types import Batch, TrajectoryBatch

logger = logging.getLogger(__name__)

#: Evaluations of a stretch.
_ROUNDS = 5


class LockstepSession:
    """The row of stretches, and an evaluation round before each; what `LearnerSession` is to other runs.

    Args:
        process: the frame, of the learner.
        stack: closes what is opened here.
    """

    def __init__(self, process: RoleProcess, stack: ExitStack) -> None:
        self.process = process
        config = process.config
        self._limits = Limits(config, is_timed=not process.arguments.supervised)
        self._evaluation = EvaluationSession(process, stack) if config.eval.enabled else None
        self._episodes = EpisodeStatistics("agent")
        self._rates = RateMeter("agent/env_steps_per_s"), RateMeter("learner/updates_per_s")
        self._stretch: Stretch | None = None
        self._counts = Counts()
        self._scored_version = 0
        self._stack = stack.enter_context(ExitStack())

    def begin(self) -> None:
        """Restore, and make what the first stretch needs.

        Raises:
            SurrealError: something cannot be made, or the checkpoint cannot be used.
        """
        _use_deterministic_algorithms()
        stretch = self._next(is_resumed=self.process.arguments.resume)
        for meter, total in zip(self._rates, stretch.counts()[:2], strict=True):
            meter.begin(total)
        telemetry = self.process.telemetry
        telemetry.add_source(self._episodes.metrics)
        telemetry.add_source(self._metrics)
        telemetry.watch(version=lambda: self.counts().version, global_step=lambda: self.counts().env_steps)

    def run(self) -> None:
        """Go through stretches until the run ends.

        Raises:
            StoppedError: the process is to stop.
            SurrealError: what ended the run.
        """
        while not self._go_through():
            self._next(is_resumed=True)

    def end(self) -> None:
        """Say what an interrupted run will do again; the rest is in its last checkpoint."""
        if self._stretch is not None and (lost := self._stretch.count_unsaved()):
            logger.warning("%d updates since the last checkpoint are dropped; --resume does them again", lost)

    def counts(self) -> Counts:
        """How far the run came."""
        if self._stretch is not None:
            self._counts = self._stretch.counts()
        return self._counts

    def give_up(self, error: SurrealError) -> None:
        """Have the run end for this reason; under a launcher, this process's exit code does that."""
        if not self.process.arguments.supervised:
            self._request_stop(f"learner failed: {error}")

    def _next(self, *, is_resumed: bool) -> Stretch:
        self.counts()
        self._stretch = None
        self._stack.close()
        self._stretch = Stretch(self.process, self._stack, self._episodes.add, is_resumed=is_resumed)
        return self._stretch

    def _go_through(self) -> bool:
        """Go through the stretch that is next; returns whether the run ends with it."""
        if self._stretch is None or self._stretch.run(self._score):
            return True
        reason = self._end_reason()
        if reason and not self._score():
            self._request_stop(reason)
        return bool(reason)

    def _score(self) -> bool:
        """Evaluate the newest parameters, unless that was done; returns whether they reach the goal and end the run."""
        version = self.counts().version
        if self._evaluation is None or version == self._scored_version:
            return False
        self._scored_version = version
        return self._evaluation.score_newest()

    def _end_reason(self) -> str:
        counts = self.counts()
        return self._limits.updates_reason(counts.updates) or self._limits.run_reason(counts.env_steps)

    def _request_stop(self, reason: str) -> None:
        client = self.process.client
        client.retry(lambda: registry.request_stop(client, reason), what="end the run", stop=self.process.stop)

    def _metrics(self) -> dict[str, float]:
        """Of what acts and learns now, with rates over all stretches; on the telemetry's thread."""
        stretch, values = self._stretch, dict[str, float]()
        for meter, total in zip(self._rates, self.counts()[:2], strict=True):
            meter.total = total
            values |= meter.metrics()
        return values if stretch is None else {**stretch.metrics(), **values}


class Stretch:
    """What acts and learns from one checkpoint to the next: `run`, once.

    Args:
        process: the frame.
        stack: closes what is opened here.
        on_episode: called with return and length of each episode of the agents.
        is_resumed: whether checkpoints in the run's folder are its own.

    Raises:
        SurrealError: something cannot be made, or the checkpoint cannot be used.
    """

    def __init__(
        self, process: RoleProcess, stack: ExitStack, on_episode: Callable[[float, int], object], *, is_resumed: bool
    ) -> None:
        self._process, self._store = process, build_checkpoints(process.config, process.run_dir)
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
        self._checkpoints.restore(is_resumed=is_resumed)
        if begun and self.learner.updates != begun:
            raise CheckpointError(
                f"the newest checkpoint in {self._store.folder} cannot be used; "
                "`--set checkpoint.restore=NAME` goes on from an earlier one"
            )
        self._clear()
        if begun:
            self._load_replay()
        self._checkpoints.begin()
        self._publishing.begin(())
        self._begun = self.counts()
        self._is_saved = False
        self._batches = 0
        self._actors = [_Actor(process, config, stack, index, on_episode) for index in range(config.agent.count)]

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
            if (due := int(_ROUNDS * self._progress)) > scored:
                scored, has_reached_goal = due, score()
        for actor in self._actors:
            actor.end()
        self._learn()
        self._publishing.finish(is_connected=True)
        if self.count_unsaved():
            self._save()
        return has_reached_goal

    def counts(self) -> Counts:
        """How far the run is."""
        return Counts(self.replay.global_step, self.learner.updates, self.broadcaster.version)

    def count_unsaved(self) -> int:
        """Updates since the checkpoint."""
        return 0 if self._is_saved else self.learner.updates - self._begun.updates

    def metrics(self) -> dict[str, float]:
        """Of everything here; of several agents, of the first."""
        first = self._actors[0]
        sources = (
            *(self.learner.metrics, self.replay.metrics, self.broadcaster.metrics, self._publishing.metrics),
            *(first.loop.metrics, first.sender.metrics, first.pool.metrics, first.listener.metrics),
        )
        return {name: value for source in sources for name, value in source().items()}

    # -- a turn ------------------------------------------------------------------------------------------------------

    def _learn(self) -> None:
        """Take in what the agents have sent, and do all updates that this allows."""
        self.replay.owner.refresh()
        queue = self.replay.pointer_queue
        while queue.enqueue_step(waits=False):
            while len(queue) and self.replay.step(0.0):
                pass
        while not self._has_max_updates() and (batch := self._next_batch()) is not None:
            self._check_stop()
            self.learner.optimize(self._batches, batch)
            self._batches += 1
            self._publishing.after_update()
            self.broadcaster.maintain()

    def _next_batch(self) -> Batch | TrajectoryBatch | None:
        """The next batch, made only now: with the priorities that came of the one before."""
        while not len(self.replay.fetcher_queue):
            if not self.replay.step(0.0):
                return None
        return self.replay.dequeue(0.0)

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
    def _stream(self) -> Any:
        return self._process.replay.stream(0)

    def _clear(self) -> None:
        """Forget what an earlier or an interrupted stretch left in Redis."""
        clear(self._stream.client, self._stream.keys.prefix)
        parameters = self._process.parameter_client
        clear(parameters, parameters.policy_keys(self._config.broadcast.policy).prefix)

    def _save(self) -> None:
        """Write experience, priorities, and last the learner, with which all three count."""
        self.replay.stop()
        self.replay.join()  # what was evicted leaves Redis
        updates = self.learner.updates
        if self.replay.stream_mode == "window":
            save_shard(self._stream, self._replay_file(updates, "shard"))
        if isinstance(self.replay, PrioritizedReplay):
            self.replay.save_priorities(self._replay_file(updates, "priorities"))
        self._checkpoints.save()
        self._is_saved = True
        kept = {name.partition(".")[0] for name in self._store.names()}
        for path in self._replay_file(updates, "shard").parent.glob("*.safetensors"):
            if path.name.partition(".")[0] not in kept:
                path.unlink()

    def _load_replay(self) -> None:
        """Bring back the experience. On-policy, all was used: what a round had begun with was cut off with it."""
        updates = self.learner.updates
        if self.replay.stream_mode == "window":
            load_shard(self._stream, self._replay_file(updates, "shard"))
        if isinstance(self.replay, PrioritizedReplay):
            self.replay.load_priorities(self._replay_file(updates, "priorities"))

    def _replay_file(self, updates: int, what: str) -> Path:
        return self._process.run_dir / "replay" / f"{updates:010d}.{what}.safetensors"


class _Actor:
    """One of the run's agents with its environments, as another agent's process would have it."""

    def __init__(
        self,
        process: RoleProcess,
        config: Config,
        stack: ExitStack,
        index: int,
        on_episode: Callable[[float, int], object],
    ) -> None:
        self.pool = build_pool(config, index=index)
        stack.callback(self.pool.close)
        spaces = Spaces(self.pool.obs_spec, self.pool.action_space)
        model = build_model(config, spaces)
        agent = build_agent(config, model, spaces, index=index, rng=role_rng(config.seed, RandomStream.AGENT, index))
        stack.callback(agent.close)
        self.listener = build_listener(config, process.parameter_client, model)
        stack.callback(self.listener.close)
        self.sender = build_sender(config, process.replay, self.pool, process.stop, index=index, is_limited=False)
        stack.callback(self.sender.discard)
        # A wait for parameters would wait for its own thread.
        self._rounds = Rounds(turn_rows(config), config.env.num_envs, timeout_s=1.0, should_stop=lambda: True)
        self.loop = AgentLoop(
            self.pool,
            agent,
            self.sender,
            on_episode=lambda score, length, _: on_episode(score, length),
            rounds=self._rounds,
        )

    def act(self, check_stop: Callable[[], object]) -> None:
        """Act with the newest parameters until a round is sent."""
        self.listener.update_once()
        done = self._rounds.done
        while self._rounds.done == done:
            check_stop()
            self.loop.step()

    def end(self) -> None:
        """Cut the episodes under way, and send what is left.

        Raises:
            ReplayFullError: it was not taken.
        """
        if not self.sender.close():
            raise ReplayFullError("the replay did not take the last experience before a checkpoint", waited_s=0.0)


def _seed(seed: int) -> None:
    """Seed what is global in this process, for whoever draws from there."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - not ours to draw from, but a user's environment may
    torch.manual_seed(seed)


def _use_deterministic_algorithms() -> None:
    """Have torch refuse what it cannot compute the same way twice, as some operations on a GPU."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA is first used
    torch.set_deterministic_debug_mode("error")  # `use_deterministic_algorithms`, without importing a compiler
    torch.backends.cudnn.benchmark = False
