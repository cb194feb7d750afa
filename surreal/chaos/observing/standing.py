"""`read_lives`: who takes part in a run, as their heartbeats say."""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping

from surreal.chaos.observing.sights import Life
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.heartbeats import parse_heartbeats


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
        )
        for beat in parse_heartbeats(beats, now_s=seconds + micros / 1e6)
    )


def _whole(metrics: Mapping[str, float], name: str) -> int:
    value = metrics.get(name, 0.0)
    return int(value) if math.isfinite(value) else 0
