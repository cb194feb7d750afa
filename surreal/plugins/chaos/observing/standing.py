"""`read_lives`: who takes part in a run, as their heartbeats say."""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping

from surreal.base.liveness.health import StartParts
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.heartbeats import Heartbeat, parse_heartbeats
from surreal.plugins.chaos.observing.sights import Life


def read_lives(client: RedisClient) -> tuple[Life, ...]:
    """All lives that Redis knows of, those that have ended included.

    Raises:
        redis.RedisError: no answer.
    """
    pipeline = client.redis.pipeline(transaction=False)
    pipeline.time()
    pipeline.hvals(client.run_keys.processes)
    (seconds, micros), beats = pipeline.execute()
    host = socket.gethostname()
    return tuple(
        Life(
            id=beat.id,
            name=beat.name,
            role=beat.role,
            pid=beat.pid,
            is_here=beat.host == host,
            is_alive=beat.is_alive(),
            age_s=beat.age_s,
            version=beat.version,
            acknowledged_chunks=_whole(beat.metrics, "sender/chunks_total"),
            acknowledged_steps=_whole(beat.metrics, "sender/steps_total"),
            dropped_chunks=_whole(beat.metrics, "sender/dropped_chunks_total"),
            start=_start(beat),
        )
        for beat in parse_heartbeats(beats, now_s=seconds + micros / 1e6)
    )


def _start(beat: Heartbeat) -> StartParts | None:
    found = [beat.metrics.get(f"{beat.role}/start_{part}", math.nan) for part in StartParts._fields]
    return StartParts(*found) if all(map(math.isfinite, found)) else None


def _whole(metrics: Mapping[str, float], name: str) -> int:
    value = metrics.get(name, 0.0)
    return int(value) if math.isfinite(value) else 0
