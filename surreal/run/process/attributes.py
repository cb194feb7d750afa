"""Attributes of environments that callbacks set: kept in Redis, and followed by agents into a file.

Each environment reads the file when an episode begins (`surreal.envs.wrappers.attributes`).
"""

from __future__ import annotations

import json
import logging
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import redis

from surreal.base.errors import EnvError, SurrealError
from surreal.base.system.files import write_whole
from surreal.config import Config
from surreal.distributed.connection.client import RedisClient
from surreal.envs.players.make import is_game

logger = logging.getLogger(__name__)

#: JSON of one value, at most.
_MAX_BYTES = 1 << 16


class EnvironmentAttributes:
    """The attributes of a run's environments, as one of its processes sets or follows them."""

    def __init__(self, config: Config, client: RedisClient) -> None:
        self._config, self._client = config, client
        self._path: Path | None = None  # of the file, in a process that follows
        self._written: Mapping[bytes, bytes] | None = None
        self._lock = threading.Lock()  # the telemetry thread follows, and a callback sets

    def set(self, values: Mapping[str, Any]) -> None:
        """Set attributes of all agents' environments, from the next episode of each on.

        Raises:
            EnvError: no environment of this run can be set.
            ValueError: a value is not JSON, is not finite, or takes more than 64 KiB.
        """
        if not _can_follow(self._config):
            raise EnvError(
                "set_environments needs agents with env.pool local or subproc, and no game of several players"
            )
        encoded: dict[Any, Any] = {name: _encode(name, value) for name, value in values.items()}
        key = self._client.run_keys.attributes
        self._client.retry(lambda: self._client.redis.hset(key, mapping=encoded), what="set attributes")
        if self._path is not None:
            self._write(self._path)

    def follow(self, stack: ExitStack) -> Path | None:
        """Return the file that environments of this process read; None if nothing can set any of their attributes."""
        if self._path is None and self._config.callbacks and _can_follow(self._config):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="surreal-attributes-"))
            self._path, self._written = Path(folder) / "attributes.json", None
            stack.callback(setattr, self, "_path", None)
            self._write(self._path)
        return self._path

    def update(self) -> None:
        """Read the newest values, if this process follows; on the telemetry thread."""
        if (path := self._path) is not None:
            try:
                self._write(path)
            except (redis.RedisError, SurrealError, OSError) as error:
                logger.debug("the attributes of environments were not read: %s", error)

    def _write(self, path: Path) -> None:
        with self._lock:
            key = self._client.run_keys.attributes
            found: Any = self._client.retry(lambda: self._client.redis.hgetall(key), what="read attributes")
            if found == self._written:
                return
            values = {name.decode(): json.loads(value) for name, value in found.items()}
            write_whole(path, json.dumps(values), is_synced=False)
            self._written = found


def _can_follow(config: Config) -> bool:
    has_agents = config.agent.count > 0 or not config.rlx.servers
    return has_agents and config.env.pool in ("local", "subproc") and not is_game(config.env.id)


def _encode(name: str, value: Any) -> bytes:
    try:
        data = json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"attribute {name} is {value!r:.80}; it must be JSON, and finite") from error
    if len(data) > _MAX_BYTES:
        raise ValueError(f"attribute {name} takes {len(data)} bytes; at most {_MAX_BYTES} are allowed")
    return data
