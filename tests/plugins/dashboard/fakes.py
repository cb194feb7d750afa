"""A run in Redis that a test makes up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from surreal.base.errors import RedisUnavailableError
from surreal.base.metrics import Reading
from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.plugins.dashboard.sources.live import Live
from surreal.replay.stream.info import ReplayInfo
from surreal.run.view.run_view import summarize_processes

BEAT = Heartbeat("id", "agent", "agent-0", 17, "host", started=1000.0, time=1100.0, version=5, global_step=340)
SHARD = ReplayInfo(
    run="demo", shard=0, epoch="e", mode="window", steps=340, live_steps=300, chunks=4, live_bytes=1 << 20,
    bytes_per_transition=1.0, max_bytes=4 << 20, samples=64, owner="token", oldest_age_s=90.0, newest_age_s=1.0,
    contract=None,
)  # fmt: skip


def live(*beats: Heartbeat, stop_reason: str = "") -> Live:
    """A run with these processes."""
    view = replace(summarize_processes(beats), run="demo", title="cartpole-dqn", stop_reason=stop_reason)
    return Live(view, 100.0, (SHARD,), None)


class FakeLive:
    """Stands in for `LiveRun`."""

    made: list[FakeLive]

    def __init__(self, address: str, run: str, **more: Any) -> None:
        self.address, self.run, self.more = address, run, more
        self.looks, self.stops, self.is_away, self.is_closed = 0, list[str](), False, False
        self.made.append(self)

    def look(self) -> Live:
        self.looks += 1
        if self.is_away:
            raise RedisUnavailableError("no answer within 2 s")
        metrics = {"agent/env_steps_per_s": 10.0 * self.looks}
        reading = Reading(1100.5, 300, {"learner/loss": 0.5})  # of the only update so far
        return live(replace(BEAT, time=1100.0 + self.looks, metrics=metrics, reading=reading))

    def stop(self, reason: str) -> bool:
        self.stops.append(reason)
        return len(self.stops) == 1

    def close(self) -> None:
        self.is_closed = True
