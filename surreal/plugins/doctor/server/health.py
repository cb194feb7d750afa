"""State of a Redis server: version, role, memory, persistence, limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from redis.exceptions import RedisError

from surreal.base.errors import SurrealError
from surreal.base.system.memory import largest_replay_bytes
from surreal.distributed.connection.client import RedisClient
from surreal.plugins.doctor.frame.finding import Finding, ok
from surreal.plugins.doctor.server.faults import (
    AWAY,
    CANNOT_SAVE,
    CONNECTIONS,
    EVICTED,
    EVICTS,
    FULL,
    NEARLY_FULL,
    READ_ONLY,
    REPLY_LIMIT,
    SLOW_APPENDS,
    SNAPSHOTS,
    TOO_SMALL,
    UNBOUNDED,
    VALUE_LIMIT,
)

_TIMEOUT_S = 3.0
_FULL, _NEARLY_FULL = 0.99, 0.92
_CONNECTIONS = 0.9
_LEAST_VALUE_BYTES = 64 << 20


def reachable(client: RedisClient) -> Iterator[Finding]:
    """See whether it answers, and is new enough."""
    try:
        version = client.check_server(timeout_s=_TIMEOUT_S)
    except SurrealError as error:
        yield AWAY.found(str(error).partition("; is it running")[0])
        return
    role = _info(client, "replication")
    if role.get("role") == "slave":
        yield READ_ONLY.found(f"it is a replica of {role.get('master_host')}:{role.get('master_port')}")
    yield ok(f"Redis {'.'.join(map(str, version))} at {client.address}")


def memory(client: RedisClient, replay_bytes: int | None) -> Iterator[Finding]:
    """See how much room there is, and what Redis does when there is none.

    Args:
        client: client of the server.
        replay_bytes: replay of experience that it is to hold; None: not known.
    """
    info = _info(client, "memory")
    used, limit, policy = int(info["used_memory"]), int(info["maxmemory"]), str(info.get("maxmemory_policy", ""))
    if policy and policy != "noeviction":
        yield EVICTS.found(f"maxmemory-policy is {policy}")
    if evicted := int(_info(client, "stats").get("evicted_keys", 0)):
        yield EVICTED.found(f"{evicted:,} keys were evicted")
    if not limit:
        yield UNBOUNDED.found(f"maxmemory is 0; {_mb(used)} are used")
        return
    share = used / limit
    said = f"{_mb(used)} of {_mb(limit)} are used"
    if share > _FULL:
        yield FULL.found(said)
    elif share > _NEARLY_FULL:
        yield NEARLY_FULL.found(said)
    else:
        yield ok(f"{said}, {policy}" if policy else said)
    if replay_bytes is not None and (room := largest_replay_bytes(limit)) < replay_bytes:
        said = f"maxmemory is {_mb(limit)}, which leaves {_mb(room)} to experience"
        yield TOO_SMALL.found(f"{said}; replay.max_bytes is {_mb(replay_bytes)}")


def persistence(client: RedisClient) -> Iterator[Finding]:
    """See what a restart of the server would leave, and what keeping it costs."""
    info = _info(client, "persistence")
    is_kept = bool(info.get("aof_enabled"))
    settings = _settings(client, "save", "appendfsync", "stop-writes-on-bgsave-error")
    has_snapshots = bool(settings.get("save"))
    is_stopped = info.get("rdb_last_bgsave_status") == "err" and settings.get("stop-writes-on-bgsave-error") != "no"
    if is_stopped and (has_snapshots or not settings):
        yield CANNOT_SAVE.found("the last snapshot failed")
    elif is_kept and info.get("aof_last_write_status") == "err":
        yield CANNOT_SAVE.found("the last write to the append-only file failed")
    if has_snapshots:
        yield SNAPSHOTS.found(f"save is {settings['save']!r}")
    if is_kept and settings.get("appendfsync") == "always":
        yield SLOW_APPENDS.found("appendfsync is always")
    what = "its append-only file keeps the replay" if is_kept else "the replay is empty"
    yield ok(f"after a restart of the server {what}")


def limits(client: RedisClient) -> Iterator[Finding]:
    """See whether a run comes near one of the server's limits."""
    info = _info(client, "clients")
    settings = _settings(client, "maxclients", "client-output-buffer-limit", "proto-max-bulk-len")
    connected, most = int(info["connected_clients"]), int(info.get("maxclients") or settings.get("maxclients") or 0)
    if most and connected > _CONNECTIONS * most:
        yield CONNECTIONS.found(f"{connected:,} of {most:,} connections are taken")
    buffers = settings.get("client-output-buffer-limit", "").split()
    normal = buffers[buffers.index("normal") + 1 :][:3] if "normal" in buffers else []
    if any(limit != "0" for limit in normal[:2]):
        yield REPLY_LIMIT.found(f"client-output-buffer-limit is normal {' '.join(normal)}")
    largest = int(settings.get("proto-max-bulk-len") or _LEAST_VALUE_BYTES)
    if largest < _LEAST_VALUE_BYTES:
        yield VALUE_LIMIT.found(f"proto-max-bulk-len is {_mb(largest)}")
    if most:
        yield ok(f"{connected:,} of {most:,} connections are taken")


def _info(client: RedisClient, section: str) -> Mapping[str, Any]:
    info: Mapping[str, Any] = client.redis.info(section)
    return info


def _settings(client: RedisClient, *names: str) -> dict[str, str]:
    """Settings of the server; empty where this user, or a managed Redis, may not ask."""
    found: dict[str, str] = {}
    for name in names:
        try:
            name_and_value = client.execute("CONFIG", "GET", name)
        except RedisError:
            return {}
        if len(name_and_value) == 2:
            found[name] = name_and_value[1].decode(errors="replace")
    return found


def _mb(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB" if size >= 10 << 20 else f"{size / 2**20:,.1f} MiB"
