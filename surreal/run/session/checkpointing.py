"""Checkpoints and priorities of a learner: when they are saved, and how its state is restored."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from surreal.base.checkpoint import Checkpoint, RunCheckpoints
from surreal.base.checkpoint.format import random_state, set_random_state
from surreal.base.contracts import BatchSource, Broadcaster, LearnerView
from surreal.base.errors import CheckpointError, ConfigError
from surreal.base.values import checked_count
from surreal.config import Config
from surreal.replay.prioritized import Prioritized
from surreal.run.build.checkpoints import OWN_CHECKPOINTS
from surreal.run.build.saved_policy import policy_file, policy_header, policy_tensors
from surreal.run.process.registry import plain_config

logger = logging.getLogger(__name__)

_NAME = "priorities"
#: They are saved this often, but never for more than a hundredth of the time.
_INTERVAL_S = 5.0
_SHARE = 0.01


class PrioritiesSaver:
    """Saves a rank's priorities every few seconds, and reads them again; does nothing for a replay without any."""

    def __init__(self, replay: object, run_dir: Path, *, rank: int = 0) -> None:
        self._replay = replay if isinstance(replay, Prioritized) else None
        self._path = run_dir / f"{_NAME}{f'-rank-{rank}' if rank else ''}.safetensors"
        self._due_s = time.monotonic() + _INTERVAL_S

    def load(self) -> None:
        if self._replay is None or not self._path.exists():
            return
        try:
            logger.info("read the priorities of %d transitions", self._replay.load_priorities(self._path))
        except CheckpointError as error:
            logger.warning("the replay begins with equal priorities: %s", error)

    def save_if_due(self) -> None:
        if time.monotonic() >= self._due_s:
            self.save()

    def save(self) -> None:
        """Save them now; a failure is a warning."""
        if self._replay is None:
            return
        started_s = time.monotonic()
        try:
            self._replay.save_priorities(self._path)
        except CheckpointError as error:
            logger.warning("the replay's priorities were not saved: %s", error)
        ended_s = time.monotonic()
        self._due_s = ended_s + max(_INTERVAL_S, (ended_s - started_s) / _SHARE)


@dataclass(eq=False)
class Checkpointing:
    """Writes a checkpoint every `checkpoint.interval_updates` and every `checkpoint.checkpoint_time_interval`."""

    config: Config  #: the whole configuration
    learner: LearnerView  #: the learner that is saved
    replay: BatchSource  #: has its own counts
    broadcaster: Broadcaster  #: knows the version
    store: RunCheckpoints  #: store of this run
    clock: Callable[[], float] = time.monotonic  #: seconds, monotonic

    def __post_init__(self) -> None:
        self.on_save: Callable[[str, int], object] = lambda _, __: None  #: with path and updates
        self._last_s = self.clock()
        self._last_updates = 0

    def restore(self, *, is_resumed: bool) -> bool:
        """Begin with the run's newest whole checkpoint, else with `checkpoint.restore`; returns whether there was one.

        Only if the run is resumed, checkpoints in its folder are its own: else, they raise `ConfigError`. Raises
        `CheckpointError` if the file that is named cannot be read, or does not fit; or if a place cannot be read, and
        the others hold none.
        """
        found = self._find(is_resumed=is_resumed)
        self.store.begin()
        if found is None:
            return False
        if found.metadata.get("kind") != "learner":
            # A policy alone: a start for the network, while all that is counted starts again.
            self.learner.model.load_tensors(policy_tensors(found), header=policy_header(found))
            logger.info("beginning with the policy in %s", found.path)
            return True
        self._take_over(found)
        self._take_over_counts(found)
        logger.info("restored %s: %d updates", found.path, self.learner.updates)
        return True

    def go_back(self) -> str:
        """Take over the run's newest whole checkpoint, but none of its counts; returns its file, "" without one."""
        found = self.store.newest_whole()
        if found is None:
            return ""
        updates, global_step = self.learner.updates, self.learner.global_step
        self._take_over(found)
        self.learner.updates = updates
        self.learner.on_global_step(global_step)
        return found.path

    def begin(self) -> None:
        """Count from here, because the initial state needs no checkpoint."""
        self._last_updates = self.learner.updates

    def save(self) -> None:
        state = self.learner.state_dict()
        metadata = {
            "kind": "learner",
            "state": state["state"],
            "replay": self.replay.state_dict(),
            "random": random_state(self.replay.rng),
            "version": self.broadcaster.version,
            "config": plain_config(self.config),
        }
        path = self.store.save(self.learner.updates, state["tensors"], metadata)
        self._last_s = self.clock()
        self._last_updates = self.learner.updates
        logger.info("checkpoint %s at update %d", path, self.learner.updates)
        self.on_save(str(path), self.learner.updates)

    def after_update(self) -> None:
        interval = self.config.checkpoint.interval_updates
        if interval is not None and self.learner.updates - self._last_updates >= interval:
            self.save()

    def save_if_due(self) -> None:
        """Save if the time since the last checkpoint is enough, and something was learned."""
        if self.clock() - self._last_s >= self.config.checkpoint.checkpoint_time_interval:
            self.finish()
            self._last_s = self.clock()

    def finish(self) -> None:
        if self.learner.updates > self._last_updates:
            self.save()

    def close(self) -> None:
        """Wait up to `checkpoint.upload_timeout_s` for uploads, and log those that did not arrive."""
        self.store.finish(self.config.checkpoint.upload_timeout_s)

    def metrics(self) -> dict[str, float]:
        return self.store.metrics()

    def _take_over_counts(self, found: Checkpoint) -> None:
        """Continue the counts of versions, env steps and samples; impossible counts are reported and ignored."""
        try:
            self.broadcaster.propose(checked_count(found.metadata["version"]))
        except (KeyError, ValueError) as error:
            logger.warning("%s has no version to continue from: %s; versions start over", found.path, error)
        if not self.store.is_own(found):
            return
        try:
            self.replay.load_state_dict(found.metadata["replay"])
        except (KeyError, ValueError) as error:
            logger.warning("%s has no counts of the replay to continue from: %s", found.path, error)
        try:
            # So that nothing is drawn twice.
            set_random_state(found.metadata["random"], self.replay.rng)
        except (KeyError, ValueError) as error:
            logger.info("random generators start again: %s", error)

    def _take_over(self, found: Checkpoint) -> None:
        self.learner.load_state_dict({"tensors": found.tensors, "state": found.metadata["state"]})

    def _find(self, *, is_resumed: bool) -> Checkpoint | None:
        restore = self.config.checkpoint.restore
        if is_resumed:
            found = self.store.newest_whole()
            if found is not None or self.store.names():
                return found
        elif self.store.names():
            raise ConfigError(
                f"{self.store.folder} holds checkpoints of an earlier run; --resume continues with it, "
                "--run NAME or --run-dir DIR begins another",
                key="--run-dir",
            )
        return None if restore is None or restore in OWN_CHECKPOINTS else self.store.load(policy_file(restore))
