"""Onlooker: what is known of a run, from one look at it to the next."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import redis

from surreal.base.errors import SurrealError
from surreal.run.process.run_folder import newest_checkpoint
from surreal.run.view.live.snapshot import Snapshot

logger = logging.getLogger(__name__)

#: What a snapshot may lack when a process has ended, and was true nevertheless.
_LASTING = ("episode_return", "eval_return", "best_return", "replay_fill", "samples_per_insert")


class Onlooker:
    """Keeps the newest snapshot; what was counted stays counted, though Redis was emptied or a process is gone.

    Attributes:
        snapshot: the newest one.

    Args:
        take: takes a snapshot.
        run_dir: the run's folder; None if it is elsewhere.
    """

    def __init__(self, take: Callable[[], Snapshot], run_dir: Path | None = None) -> None:
        self.snapshot = Snapshot(())
        self._take = take
        self._run_dir = run_dir

    def look(self) -> bool:
        """Look at the run; returns whether Redis was there."""
        try:
            found = self._take()
        except (SurrealError, redis.RedisError) as error:
            logger.debug("no snapshot: %s", error)
            return False
        before, written = self.snapshot, 0 if self._run_dir is None else newest_checkpoint(self._run_dir)
        self.snapshot = replace(
            found,
            env_steps=max(found.env_steps, before.env_steps),
            skipped_updates=max(found.skipped_updates, before.skipped_updates),
            updates=max(found.updates, before.updates, written),
            version=max(found.version, before.version),
            **{name: getattr(before, name) for name in _LASTING if getattr(found, name) is None},
        )
        return True
