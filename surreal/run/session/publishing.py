"""When a learner's parameters are published, and which parameters it continues from after it diverged."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from surreal.base.contracts import BatchSource, Broadcaster, LearnerView
from surreal.base.errors import CodecError, ContractError, DivergedError, SurrealError
from surreal.base.pytorch import Module, name_not_finite
from surreal.config import Config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.heartbeats import Heartbeat, newest_version
from surreal.run.process.progress import read_progress, read_table, write_progress
from surreal.run.session.checkpointing import Checkpointing

logger = logging.getLogger(__name__)

#: Updates that a learner must do before it may go back once more.
GOOD_UPDATES = 1000


@dataclass(eq=False)
class Publishing:
    """Broadcasts a learner's parameters every `broadcast.interval_updates`, but not within `broadcast.interval_s`.

    What a consuming stream handed out is committed after the broadcast that includes it, so a learner that dies loses
    nothing.
    """

    config: Config  #: the whole configuration
    client: RedisClient  #: client of the run, at the parameter server
    model: Module  #: what is published
    learner: LearnerView  #: improves it
    replay: BatchSource  #: where the batches come from
    broadcaster: Broadcaster  #: broadcaster of the model
    clock: Callable[[], float] = time.monotonic  #: seconds, monotonic

    def __post_init__(self) -> None:
        #: gives what `write_progress` tells of gradients
        self.applied: Callable[[], Mapping[str, int] | None] = lambda: None
        #: called with version and updates when parameters have gone out
        self.on_publish: Callable[[int, int], object] = lambda _, __: None
        self._last_s = -float("inf")
        self._last_updates = 0

    def has_parameters(self) -> bool:
        keys = self.client.policy_keys(self.config.published_policy)
        return bool(self.client.redis.hexists(keys.params, "version"))

    def take_over(self, *, has_checkpoint: bool = False) -> bool:
        """Continue from the last broadcast if it is newer than the learner's state; return whether it is.

        Without a checkpoint, it is better than nothing. With one, it is newer, and holds what was learned since from
        experience that a consuming stream has let go; so the checkpoint gives the optimizer's state alone.
        """
        message = self.broadcaster.read_message()
        self.replay.learned = read_table(message, "learned")  # agents wait for what has been learned from
        updates = read_progress(message).get("updates", 0)
        if has_checkpoint and (self.replay.stream_mode != "consume" or updates <= self.learner.updates):
            return False
        if not self._load_last():
            return False
        # Schedules and limits depend on it. Of several servers, all take that of the first.
        self.learner.updates = read_progress(self.broadcaster.message).get("updates", 0)
        return True

    def go_back(self) -> str:
        """Take over the parameters that were broadcast last, with optimizers as new; returns which, "" if none were."""
        if not self._load_last():
            return ""
        self.learner.rebuild()
        return f"the parameters of version {self.model.version}"

    def begin(self, beats: Iterable[Heartbeat]) -> None:
        """Publish the parameters under a version newer than any in use."""
        self.broadcaster.propose(newest_version(beats, self.broadcaster.newest_version()))
        if self.model.is_materialized:
            self.publish()

    def publish(self) -> None:
        learner, replay = self.learner, self.replay
        counts = (learner.updates, replay.global_step, self.applied(), replay.learned)
        self.broadcaster.broadcast(self.model, write_progress(*counts, skipped=learner.skipped_updates))
        self._last_s = self.clock()
        self._last_updates = self.learner.updates
        self.replay.commit(self.broadcaster.version)
        self.on_publish(self.broadcaster.version, self.learner.updates)

    def after_update(self) -> None:
        self._publish_if_due(self.config.broadcast.interval_updates)

    def while_waiting(self) -> None:
        """No batch came: agents may wait for room, which there is after the commit that follows a broadcast."""
        if self.replay.stream_mode == "consume":
            self._publish_if_due(1)

    def finish(self, *, is_connected: bool) -> None:
        """Publish the newest parameters, unless Redis is known to be away; the checkpoint has them as well."""
        if self.learner.updates > self._last_updates and is_connected:
            try:
                self.publish()
            except (SurrealError, OSError) as error:
                logger.warning("the last parameters were not broadcast: %s", error)

    def metrics(self) -> dict[str, float]:
        """By how many versions the newest experience is behind."""
        newest = self.replay.metrics().get("replay/newest_version", -1.0)
        return {"learner/policy_lag_versions": self.broadcaster.version - newest} if newest >= 0 else {}

    def _load_last(self) -> bool:
        try:
            return self.broadcaster.restore()
        except (CodecError, ContractError) as error:
            logger.warning("the last broadcast is of no use: %s", error)
            return False

    def _publish_if_due(self, interval_updates: int) -> None:
        has_learned = self.learner.updates - self._last_updates >= interval_updates
        if has_learned and self.clock() - self._last_s >= self.config.broadcast.interval_s:
            self.publish()


@dataclass(eq=False)
class Rollback:
    """Takes a diverged learner back to its newest good state. Counts of updates and versions never go back."""

    learner: LearnerView  #: the learner to restore
    checkpoints: Checkpointing  #: asked first
    publishing: Publishing  #: asked if there is no checkpoint; publishes what the learner continues with

    def __post_init__(self) -> None:
        self.count = 0  #: how often the learner went back
        self._source = ""
        self._updates = 0

    def after(self, error: DivergedError) -> None:
        """Restore a good state, and publish it; raises `DivergedError` if there is none, or it is too soon."""
        done = self.learner.updates - self._updates
        if self.count and done < GOOD_UPDATES:
            raise self._again(error, done) from error
        source = self.checkpoints.go_back() or self.publishing.go_back() or self._stay()
        if not source:
            raise DivergedError(f"{error}; there are no good parameters to go back to") from error
        if self.count and source == self._source:
            raise self._again(error, done) from error
        self.count += 1
        self._source, self._updates = source, self.learner.updates
        logger.warning("update %d: the learner diverged: %s; it goes back to %s", self._updates, error, source)
        self.publishing.publish()

    def _stay(self) -> str:
        """Continue with the present parameters, if they are good: then the optimizer's state diverged."""
        if not self.learner.is_ready or name_not_finite(self.learner.model.tensors()):
            return ""
        self.learner.rebuild()
        return "the parameters it has"

    def _again(self, error: DivergedError, done: int) -> DivergedError:
        return DivergedError(
            f"the learner diverged again, {done} updates after it went back to {self._source}: {error}"
        )
