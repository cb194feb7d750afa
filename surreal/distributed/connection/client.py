"""`RedisClient`: one Redis address and the names of one run. Senders, replays, broadcasters and listeners use it.

The constructor never connects, so processes start in any order. Operations that may be repeated go through `retry`,
which is bounded, jittered, logged, and ends with its owner's stop event. Nothing else is repeated.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import Any, Self, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.crc import key_slot
from redis.exceptions import NoScriptError, RedisError
from redis.retry import Retry

from surreal.base.errors import RedisUnavailableError, StoppedError
from surreal.base.ranges import Positive, checked
from surreal.distributed.connection.address import resolve_address
from surreal.distributed.connection.cluster import ClusterMap, SentinelMap
from surreal.distributed.connection.keys import RUNS, RUNS_HASH_SLOT, PolicyKeys, RunKeys, ShardKeys, run_pattern
from surreal.distributed.connection.retry import RetryPolicy
from surreal.distributed.connection.wire import ScriptArg, connection_class, load_script

logger = logging.getLogger(__name__)

T = TypeVar("T")

MIN_SERVER_VERSION = (6, 2)
#: Bytes that a connection reads at once. Large replies (observation blocks, parameters) then need few system calls.
SOCKET_READ_SIZE = 256 << 10
#: A connection that was idle for longer is tested before its next use, s. So a peer that vanished costs no command.
HEALTH_CHECK_INTERVAL_S = 15
#: No limit: each thread uses the connections it needs, and the server limits its clients. redis-py's default is 100.
_MAX_CONNECTIONS = 2**31
_STOPPED = threading.Event()
_STOPPED.set()
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class RedisClient:
    """A thread-safe client of one Redis server, within the namespace of one run.

    In a Redis Cluster, it follows the server that has a hash slot: by default that of the run's keys. Behind Sentinels,
    it follows the primary.

    Args:
        address: `host:port`, `redis://`, `rediss://`, `unix:///path`, `redis+cluster://host:port,host:port` or
            `redis+sentinel://host:port,host:port/SERVICE`; see `surreal.distributed.connection.address`. If it has no
            password, the environment's is used; for a `FoundAddress`, only if the user has named its host.
        run: id of the run, the namespace of all keys: letters, digits, `.`, `_`, `-`.
        password: wins over a password in the address.
        username: ACL user; wins over a user in the address.
        timeout_s: for one answer. Raising it tolerates slower servers, but detects a dead one later.
        retry_timeout_s: how long `retry` keeps trying by default, s; `math.inf` waits until its owner stops.
        hash_slot: in a cluster, 0 .. 16383; None: that of the run's keys, except shards.

    Raises:
        ValueError: the address or the run's id is not valid, or a file with a secret cannot be read.
    """

    @checked
    def __init__(
        self,
        address: str = "127.0.0.1:6379",
        *,
        run: str = "default",
        password: str | None = None,
        username: str | None = None,
        timeout_s: Positive = 5.0,
        retry_timeout_s: float = 300.0,
        hash_slot: int | None = None,
    ) -> None:
        self.run = check_name(run, "run id")
        self._given = partial(RedisClient, address, run=run, password=password, username=username, timeout_s=timeout_s)
        self.retry_timeout_s = retry_timeout_s
        self.run_keys = RunKeys(self.run)
        parsed, advice = resolve_address(address, os.environ, run, username=username, password=password)
        self.address = parsed.shown
        options: dict[str, Any] = {
            "socket_timeout": timeout_s,
            "socket_connect_timeout": timeout_s,
            "socket_read_size": SOCKET_READ_SIZE,
            "health_check_interval": HEALTH_CHECK_INTERVAL_S,
            "max_connections": _MAX_CONNECTIONS,
            # RESP2 on every server: one shape of replies, no HELLO to negotiate. TCP keepalive is redis-py's default.
            "protocol": 2,
            # No CLIENT SETINFO: two round trips per connection, and an error on 6.2.
            "driver_info": None,
        }
        options.update(parsed.options)
        options["retry"] = Retry(NoBackoff(), 0)
        options["decode_responses"] = False
        self._cluster: ClusterMap | None = None
        self._map: ClusterMap | SentinelMap | None = None
        if parsed.service is not None:
            self._map = SentinelMap(parsed.nodes, parsed.service, parsed.connection_class, options)
        elif parsed.nodes:
            self._map = self._cluster = ClusterMap(parsed.nodes, parsed.connection_class, options)
        slots: dict[str, Any] = {}
        if self._map is not None:
            slots = {"server_map": self._map, "hash_slot": self.run_keys.hash_slot if hash_slot is None else hash_slot}
        managed = connection_class(parsed.connection_class, follows_hash_slot=bool(slots))
        pool = redis.ConnectionPool(connection_class=managed, **slots, **options)
        try:
            pool.make_connection()  # builds the object without connecting, to find a wrong option now
        except TypeError as error:
            raise ValueError(f"Redis address {self.address!r} has an option that is not known: {error}") from None
        pool.reset()
        self.redis: redis.Redis = redis.Redis.from_pool(pool)
        self._retry_policy = RetryPolicy(self.address, advice)

    def __repr__(self) -> str:
        return f"RedisClient({self.address!r}, run={self.run!r})"

    @property
    def is_cluster(self) -> bool:
        return self._cluster is not None

    @property
    def is_away(self) -> bool:
        """Whether no server answered the last call through `retry` or `attempt`, of any thread."""
        return self._retry_policy.is_away

    def at_hash_slot(self, hash_slot: int) -> RedisClient:
        """Return a client of the server that has a hash slot, in a cluster; otherwise this one."""
        return self._given(retry_timeout_s=self.retry_timeout_s, hash_slot=hash_slot) if self.is_cluster else self

    @contextmanager
    def directory(self) -> Iterator[redis.Redis]:
        """Connect to the server that lists the runs, for a `with` block."""
        client = self.at_hash_slot(RUNS_HASH_SLOT)
        try:
            yield client.redis
        finally:
            if client is not self:
                client.close()

    def scan(self, pattern: str) -> Iterator[bytes]:
        """Yield the keys that match a pattern, in all servers of a cluster. Slow; some keys may come twice."""
        servers = [self.redis] if self._cluster is None else self._cluster.primaries()
        for server in servers:
            yield from server.scan_iter(match=pattern, count=1000)

    def shard_keys(self, shard: int = 0, num_shards: int = 1) -> ShardKeys:
        if not 0 <= shard < num_shards:
            raise ValueError(f"shard is {shard}; it must be 0 .. {num_shards - 1}")
        return ShardKeys(self.run, shard, num_shards)

    def policy_keys(self, policy: str = "default") -> PolicyKeys:
        return PolicyKeys(self.run, check_name(policy, "policy"))

    def retry(
        self,
        operation: Callable[[], T],
        *,
        what: str,
        stop: threading.Event | None = None,
        timeout_s: float | None = None,
    ) -> T:
        """Call `operation` until Redis answers. Only for operations that may be executed twice.

        The operation is tried at least once, also when `stop` is already set, so that a drain can use it.

        Args:
            operation: one or more commands; called again from its beginning.
            what: the action, for messages, such as "append a chunk".
            stop: ends the wait.
            timeout_s: how long to keep trying; None: the client's `retry_timeout_s`.

        Raises:
            RedisUnavailableError: Redis did not answer in time, or refuses this user, password or certificate.
            StoppedError: `stop` was set while waiting.
        """
        timeout_s = self.retry_timeout_s if timeout_s is None else timeout_s
        return self._retry_policy.call(operation, what=what, stop=stop, timeout_s=timeout_s)

    def attempt(self, operation: Callable[[], T], *, what: str) -> T | None:
        """Call `operation` once; return None if Redis did not answer. `is_away` is then true until a call succeeds.

        Raises:
            RedisUnavailableError: Redis refuses this user, password or certificate.
        """
        with suppress(StoppedError):
            return self.retry(operation, what=what, stop=_STOPPED)
        return None

    def execute(self, *command: ScriptArg) -> Any:
        """Run one command once and return the server's reply unchanged, strings as bytes."""
        return self.redis.execute_command(*command)  # type: ignore[no-untyped-call]

    def read_stream(
        self, key: str, cursor: bytes | str, count: int, block_ms: int | None = None
    ) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """Read entries of a stream after the cursor, oldest first; wait up to `block_ms` (None: not at all) for one."""
        reply: Any = self.redis.xread({key: cursor}, count=count, block=block_ms)
        return list(reply[0][1]) if reply else []

    def run_script(self, name: str, keys: Sequence[str], args: Sequence[ScriptArg] = ()) -> Any:
        """Run the script `name` once and return its reply, strings as bytes. A server that lacks it gets its text.

        Raises:
            redis.exceptions.OutOfMemoryError: the server is at maxmemory (from any server version).
            redis.exceptions.RedisError: see `retry`.
        """
        script = load_script(name)
        try:
            return self.execute("EVALSHA", script.sha1, len(keys), *keys, *args)
        except NoScriptError:
            return self.execute("EVAL", script.text, len(keys), *keys, *args)

    def ping(self) -> bool:
        """Whether Redis answers now; never raises a connection error."""
        try:
            return bool(self.execute("PING"))
        except RedisError as error:
            logger.debug("Redis at %s: %s", self.address, error)
            return False

    def check_server(self, *, timeout_s: float = 10.0, stop: threading.Event | None = None) -> tuple[int, ...]:
        """Wait for a server >= 6.2; return its version, such as (7, 0, 15), or raise `RedisUnavailableError`."""
        info: Any = self.retry(
            lambda: self.redis.info("server"), what="say its version", stop=stop, timeout_s=timeout_s
        )
        text = str(info.get("redis_version", "0"))
        version = tuple(int(part) for part in re.findall(r"\d+", text)[:3])
        if version < MIN_SERVER_VERSION:
            wanted = ".".join(map(str, MIN_SERVER_VERSION))
            message = f"Redis at {self.address} is version {text}; Surreal needs {wanted} or newer"
            raise RedisUnavailableError(message, address=self.address)
        return version

    def server_time_s(self) -> float:
        """Return the server's clock, s since 1970: the only clock that all processes share."""
        seconds, microseconds = self.execute("TIME")
        return int(seconds) + int(microseconds) * 1e-6

    def delete_run(self) -> int:
        """Remove all keys of the run from this server, and nothing else; return how many."""
        deleted = self.unlink(*run_pattern(self.run))
        with self.directory() as directory:
            directory.hdel(RUNS, self.run)
        return deleted

    def unlink(self, *patterns: str) -> int:
        """Remove the keys that match any of the patterns, in all servers of a cluster; return how many."""
        deleted = 0
        for pattern in patterns:
            keys = self.scan(pattern)
            while batch := list(islice(keys, 500)):
                by_hash_slot: dict[int, list[bytes]] = {}
                for key in batch:
                    by_hash_slot.setdefault(key_slot(key) if self.is_cluster else 0, []).append(key)
                for hash_slot, names in by_hash_slot.items():
                    client = self.at_hash_slot(hash_slot)
                    deleted += int(client.execute("UNLINK", *names))
                    if client is not self:
                        client.close()
        return deleted

    def close(self) -> None:
        """Close all connections; a client that is used again connects again."""
        self.redis.close()
        if self._map is not None:
            self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def check_name(name: str, what: str) -> str:
    """Return a run's id or a policy's name; raises `ValueError` if it cannot be part of a key."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{what} {name!r} must be 1-128 letters, digits, '.', '_', '-', the first a letter or digit")
    return name
