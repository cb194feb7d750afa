"""The processes of a run: heartbeats in Redis, written by telemetry, read by launcher, status and learners.

Machines' clocks differ, so a heartbeat has the Redis server's time, as known to its writer, and its reader compares it
with the server's time. A process that ends in order removes its heartbeat; that of a killed process grows stale.
"""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from surreal.base.errors import CodecError
from surreal.base.metrics import Reading
from surreal.base.values import MAX_VERSION, checked_count
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.records import decode_number, encode_number

#: A process is alive while its heartbeat is younger than this, s.
ALIVE_S = 10.0
#: Heartbeats older than this are removed, s: long enough for `surreal status` to show killed processes.
FORGET_S = 600.0
#: Versions that a heartbeat may be ahead of the parameters and the checkpoint. Any process of the run may write
#: heartbeats, so a single one cannot move the run's versions far.
MAX_AHEAD = 100_000
_MAX_HEARTBEAT_BYTES = 1 << 20

NO_READING = Reading(0.0, 0, {})


@dataclass(frozen=True)
class Heartbeat:
    """The last report of a process about its state."""

    id: str
    role: str
    name: str
    pid: int
    host: str
    started: float  #: s, clock of the Redis server
    time: float  #: s, clock of the Redis server
    version: int = 0  #: newest parameter version it has
    global_step: int = 0  #: env steps of the run, as known to it
    metrics: dict[str, float] = field(default_factory=dict)
    reading: Reading = NO_READING  #: the newest; its time is by the clock of the Redis server
    waits_for: tuple[str, ...] = ()  #: descriptions of waits of two seconds or more
    hangs_in: str = ""  #: loop and call that its watchdog found hanging
    warning: str = ""  #: its last warning, except waits
    warned: float = 0.0  #: time of the warning, s, clock of the Redis server
    age_s: float = 0.0  #: set by the reader

    def encode(self) -> bytes:
        content = asdict(self)
        del content["age_s"]
        content["metrics"] = _encoded(self.metrics)
        content["reading"] = [self.reading.time, self.reading.step, _encoded(self.reading.values)]
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes, *, now_s: float) -> Heartbeat:
        """Check and decode one heartbeat, or raise `CodecError`; `now_s` is the Redis server's time."""
        if len(data) > _MAX_HEARTBEAT_BYTES:
            raise CodecError(f"heartbeat of {len(data)} bytes")
        try:
            content: Any = json.loads(data)
            time_s, step, values = content.get("reading", NO_READING)
            beat = cls(
                id=str(content["id"])[:200],
                role=str(content["role"])[:200],
                name=str(content["name"])[:200],
                pid=int(content["pid"]),
                host=str(content["host"])[:200],
                started=decode_number(content["started"]),
                time=decode_number(content["time"]),
                version=checked_count(content["version"], MAX_VERSION),
                global_step=checked_count(content["global_step"]),
                metrics=_numbers(content["metrics"]),
                reading=Reading(decode_number(time_s), checked_count(step), _numbers(values)),
                waits_for=tuple(str(text)[:300] for text in list(content.get("waits_for", ()))[:10]),
                hangs_in=str(content.get("hangs_in", ""))[:300],
                warning=str(content.get("warning", ""))[:300],
                warned=decode_number(content.get("warned", 0.0)),
                age_s=now_s - decode_number(content["time"]),
            )
        except (CodecError, KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            raise CodecError(f"not a heartbeat: {error!r}") from error
        if not math.isfinite(beat.time):
            raise CodecError("heartbeat without a time")
        return beat

    def is_alive(self, max_age_s: float = ALIVE_S) -> bool:
        """Whether it is fresh. One from the future was written by another server's clock and proves nothing."""
        return abs(self.age_s) <= max_age_s


def _encoded(numbers: Mapping[str, float]) -> dict[str, float | str]:
    return {name: encode_number(value) for name, value in numbers.items()}


def _numbers(content: Any) -> dict[str, float]:
    return {str(name): decode_number(value) for name, value in content.items()}


def process_id(role: str, name: str, host: str, pid: int) -> str:
    """Return a unique id: role-name-host-pid-random."""
    parts = [name] if name == role or name.startswith(f"{role}-") else [role, name]
    stem = re.sub(r"[^A-Za-z0-9_.-]", "_", "-".join([*parts, host, str(pid)]))
    return f"{stem[:180]}-{secrets.token_hex(4)}"


def all_processes(client: RedisClient) -> list[Heartbeat]:
    """Return the last valid heartbeats of all processes, also dead ones, by name; raises as `RedisClient.retry`."""

    def read() -> Any:
        pipeline = client.redis.pipeline(transaction=False)
        pipeline.time()
        pipeline.hgetall(client.run_keys.processes)
        return pipeline.execute()

    (seconds, micros), content = client.retry(read, what="read the heartbeats")
    return parse_heartbeats(content.values(), now_s=seconds + micros / 1e6)


def parse_heartbeats(values: Iterable[bytes], *, now_s: float) -> list[Heartbeat]:
    """Decode the valid heartbeats, sorted by name and age."""
    beats = []
    for value in values:
        try:
            beats.append(Heartbeat.decode(value, now_s=now_s))
        except CodecError:
            continue
    return sorted(beats, key=lambda beat: (beat.role, beat.name, beat.age_s))


def live_processes(client: RedisClient) -> list[Heartbeat]:
    """Return the heartbeats of the run's live processes; raises `RedisUnavailableError` without an answer."""
    return [beat for beat in all_processes(client) if beat.is_alive()]


def newest_version(beats: Iterable[Heartbeat], known: int) -> int:
    """Return the largest parameter version in use, which a returning learner must exceed: of the live processes, and
    the one that is `known` from Redis and the checkpoint. More than `MAX_AHEAD` ahead of this one does not count.
    """
    return max([known, *(beat.version for beat in beats if beat.version <= known + MAX_AHEAD)])
