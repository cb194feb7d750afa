"""Onlooker: what is known of a run, from one look at it to the next."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import redis

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.shards import ReplayShards
from surreal.errors import SurrealError
from surreal.main.launch.view.snapshot import Snapshot, take_snapshot
from surreal.main.process.run_folder import newest_checkpoint

logger = logging.getLogger(__name__)

#: What a snapshot may lack when a process has ended, and was true nevertheless.
_LASTING = ("episode_return", "eval_return", "best_return", "replay_fill", "samples_per_insert")


class Onlooker:
    """Keeps the newest snapshot; what was counted stays counted, though Redis was emptied or a process is gone.

    Attributes:
        snapshot: the newest one.

    Args:
        client: of the run.
        replay: where the experience is.
        parameter_client: where the parameters are.
        policy: whose version counts.
        run_dir: the run's folder.
    """

    def __init__(
        self, client: RedisClient, replay: ReplayShards, parameter_client: RedisClient, *, policy: str, run_dir: Path
    ) -> None:
        self.snapshot = Snapshot(())
        self._servers = client, replay, parameter_client
        self._policy = policy
        self._run_dir = run_dir

    def look(self) -> bool:
        """Look at the run; returns whether Redis was there."""
        try:
            found = take_snapshot(*self._servers, policy=self._policy)
        except (SurrealError, redis.RedisError) as error:
            logger.debug("no snapshot: %s", error)
            return False
        before = self.snapshot
        self.snapshot = replace(
            found,
            env_steps=max(found.env_steps, before.env_steps),
            updates=max(found.updates, before.updates, newest_checkpoint(self._run_dir)),
            version=max(found.version, before.version),
            **{name: getattr(before, name) for name in _LASTING if getattr(found, name) is None},
        )
        return True
