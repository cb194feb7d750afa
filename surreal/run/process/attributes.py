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
from surreal.envs.atari.preprocessing import is_atari
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
        """Set attributes of all agents' environments from the next episode on; raises as `set_environments`."""
        if why := why_fixed(self._config):
            raise EnvError(f"set_environments cannot be used: {why}")
        encoded: dict[Any, Any] = {name: _encode(name, value) for name, value in values.items()}
        key = self._client.run_keys.attributes
        self._client.retry(lambda: self._client.redis.hset(key, mapping=encoded), what="set attributes")
        if self._path is not None:
            self._write(self._path)

    def follow(self, stack: ExitStack) -> Path | None:
        """Return the file that environments of this process read; None if nothing can set any of their attributes."""
        if self._path is None and self._config.callbacks and not why_fixed(self._config):
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


def why_fixed(config: Config) -> str:
    """Return why callbacks can set no environment of a run; "" if they can set some."""
    env = config.env
    if config.rlx.servers and not config.agent.count:
        return (
            "this run's environments connect over RLX, which sends them no attributes; they must change by themselves"
        )
    if is_game(env.id):
        return f"{env.id} is a game of several players, which keeps its attributes; give them in env.kwargs"
    if env.pool == "envpool":
        return "env.pool is envpool, whose environments keep their attributes; set env.pool to local or subproc"
    if env.pool == "vector" and is_atari(env.id):
        return "env.pool is vector, and ALE's vector environment has no attributes; set env.pool to local or subproc"
    return ""


def _encode(name: str, value: Any) -> bytes:
    try:
        data = json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"attribute {name} is {value!r:.80}; it must be JSON, and finite") from error
    if len(data) > _MAX_BYTES:
        raise ValueError(f"attribute {name} takes {len(data)} bytes; at most {_MAX_BYTES} are allowed")
    return data
