"""`Telemetry`: the reports of a process to its run: logs, metrics and a heartbeat, through Redis.

One background thread sends everything in one round trip per interval (see `shipper`), and learns whether the run is to
stop. Callers on hot paths only append to bounded buffers. While Redis is away or full, the newest lines are kept,
dropped ones are counted and reported, and training continues.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import islice
from typing import Any, Self, TypeVar

from surreal.base.metrics import (
    EpisodeStatistics,
    Histogram,
    HistogramSource,
    MetricSource,
    Reading,
    ReadingSource,
    summarize,
)
from surreal.base.ranges import Positive, checked
from surreal.base.system.logs import WAITS
from surreal.base.system.threads import Supervisor
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.heartbeats import NO_READING, Heartbeat, process_id
from surreal.distributed.telemetry.records import encode_histogram, encode_log, encode_metrics, metric_name
from surreal.distributed.telemetry.shipper import LineBuffer, Shipper, ShippingHandler

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Most metrics in a heartbeat, and in one reading.
MAX_HEARTBEAT_METRICS = 300


@checked
@dataclass(eq=False, repr=False)
class Telemetry:
    """Ships logs and metrics of this process, renews its heartbeat, and learns that the run is to stop.

    Use it as `with Telemetry(client, "agent", "agent-0") as telemetry: ...`, or call `start` and `stop`. Without a
    thread, call `step` once per interval.
    """

    client: RedisClient
    role: str  #: agent, learner, eval, ...: the first part of metrics' names
    name: str  #: name of the process, and of its file in the run's folder
    _: KW_ONLY
    interval_s: Positive = 1.0  #: between two round trips; raising it saves Redis calls and delays everything
    #: bound of each of the two buffers, logs and metrics; raising it bridges longer outages
    max_buffer_bytes: int = 1 << 20
    #: called once with the reason, on the telemetry thread, when a stop of the run is requested
    on_stop: Callable[[str], None] | None = None

    def __post_init__(self) -> None:
        self._host, self._pid = socket.gethostname(), os.getpid()
        self.id = process_id(self.role, self.name, self._host, self._pid)
        self._logs, self._values = LineBuffer(self.max_buffer_bytes), LineBuffer(self.max_buffer_bytes)
        self._shipper = Shipper(
            self.client, process=self.id, name=self.name, role=self.role, logs=self._logs, values=self._values
        )
        self.handler = ShippingHandler(self._logs)  #: ships log records; `start` attaches it to the root logger
        self.version = 0  #: parameter version of this process; set it or see `watch`
        self.global_step = 0  #: env steps of the run, as last known here; set it or see `watch`
        self.hangs_in = ""  #: loop and call that the process's watchdog found hanging; "" if none
        self._read_version: Callable[[], int] | None = None
        self._read_global_step: Callable[[], int] | None = None
        self._episodes = EpisodeStatistics(self.role)
        self._sources: list[MetricSource] = [self._episodes.metrics, self.metrics]
        self._histogram_sources: list[HistogramSource] = []
        self._reading_sources: list[ReadingSource] = []
        self._actions: list[Callable[[], object]] = []
        self._failed_sources: set[object] = set()
        self._latest: dict[str, float] = {}
        self._reading = NO_READING
        self._started_s = time.time()
        self._reported_drops = 0
        self._step_lock = threading.Lock()
        self._supervisor = Supervisor("telemetry")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def stop_reason(self) -> str | None:
        """Reason to stop the run, from Redis; None while it continues."""
        return self._shipper.stop_reason

    @property
    def is_connected(self) -> bool:
        return self._shipper.is_connected

    def add_source(self, source: MetricSource) -> None:
        """Call `source()` once per interval, on the telemetry thread; it returns full metric names."""
        self._sources.append(source)

    def add_readings(self, source: ReadingSource) -> None:
        """Take the readings of `source()` once per interval, on the telemetry thread; each is reported once."""
        self._reading_sources.append(source)

    def add_histograms(self, source: HistogramSource) -> None:
        """Take the histograms of `source()` once per interval, on the telemetry thread; it returns full names."""
        self._histogram_sources.append(source)

    def at_each_step(self, action: Callable[[], object]) -> None:
        """Call `action()` after each round trip, on the telemetry thread."""
        self._actions.append(action)

    def watch(self, *, version: Callable[[], int] | None = None, global_step: Callable[[], int] | None = None) -> None:
        """Read parameter version and global step from these once per interval, on the telemetry thread."""
        self._read_version = version or self._read_version
        self._read_global_step = global_step or self._read_global_step

    def scalar(self, name: str, y: float, x: int | None = None) -> None:
        """Report one number, from any thread.

        Args:
            name: `role/what_unit`; a bare name belongs to this process's role.
            y: the value; NaN and infinities are kept.
            x: its step, >= 0; None: the global step.
        """
        full_name, value = metric_name(name, self.role), float(y)
        self._remember(full_name, value)
        self._values.add(encode_metrics(time_s=time.time(), step=self._step_of(x), values={full_name: value}))

    def histogram(self, name: str, values: Any, x: int | None = None, *, bins: int = 30) -> None:
        """Report the distribution of an array or tensor, binned here, from any thread; raises as `summarize`.

        Args:
            name: full or bare name, see `scalar`.
            values: any shape; numbers that are not finite are left out.
            x: its step, >= 0; None: the global step.
            bins: 1 to 1000; raising it sharpens the picture and lengthens the record.
        """
        self._add_histogram(name, summarize(values, bins=bins), x)

    def episode(self, episode_return: float, length: int, env_id: int = 0) -> None:
        """Count a finished episode (undiscounted raw return, env steps) of an environment; call it from one thread."""
        self._episodes.add(float(episode_return), int(length), env_id)

    def metrics(self) -> dict[str, float]:
        return {
            "telemetry/dropped_lines_total": float(self._dropped),
            "telemetry/errors_total": float(self._shipper.error_count),
        }

    def start(self) -> None:
        """Attach the log handler and begin to ship; returns at once, even if Redis is away."""
        logging.getLogger().addHandler(self.handler)
        self._supervisor.spawn("ship", self._loop)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Ship the remaining lines and remove the heartbeat. Calling it again does nothing."""
        if self._supervisor.stop_event.is_set():
            return
        deadline = time.monotonic() + timeout_s
        self._supervisor.stop()
        joined = self._supervisor.join(timeout_s)
        logging.getLogger().removeHandler(self.handler)
        if not joined:
            return  # the thread hangs in a round trip: a second one would hang as well
        is_delivered = self.step()
        while is_delivered and self._shipper.has_backlog and time.monotonic() < deadline:
            is_delivered = self._shipper.ship(self._heartbeat())
        if is_delivered:
            self._shipper.remove_heartbeats()

    def step(self) -> bool:
        """Ship one interval's reports; return whether Redis took it. Never raises: telemetry must not end training.

        Another thread may call it while the thread of `start` runs: a lock serializes the two.
        """
        with self._step_lock:
            try:
                self._collect()
                had_reason = self.stop_reason is not None
                is_delivered = self._shipper.ship(self._heartbeat())
                if self.stop_reason is not None and not had_reason and self.on_stop is not None:
                    self.on_stop(self.stop_reason)
                for action in self._actions:
                    action()
            except Exception:
                self._shipper.note_trouble("telemetry failed", exc_info=True)
                return False
            return is_delivered

    def _loop(self) -> None:
        self.step()  # before the first wait, so that a new process is seen at once
        self._supervisor.stop_event.wait(self.interval_s)

    @property
    def _dropped(self) -> int:
        return self._logs.dropped + self._values.dropped + self._shipper.refused

    def _step_of(self, x: int | None) -> int:
        return max(0, int(self.global_step if x is None else x))

    def _add_histogram(self, name: str, content: Histogram, x: int | None = None) -> None:
        full_name = metric_name(name, self.role)
        line = encode_histogram(time_s=time.time(), step=self._step_of(x), name=full_name, histogram=content)
        self._values.add((line,))

    def _remember(self, name: str, value: float) -> None:
        if name in self._latest or len(self._latest) < MAX_HEARTBEAT_METRICS:
            self._latest[name] = value

    def _collect(self) -> None:
        read = self._read_version
        if read is not None and (version := self._guard(read, read)) is not None:
            self.version = version
        read = self._read_global_step
        if read is not None and (step := self._guard(read, read)) is not None:
            self.global_step = step
        for take_readings in self._reading_sources:
            for time_s, x, given in self._guard(take_readings, take_readings) or ():
                named = {metric_name(name, self.role): given[name] for name in islice(given, MAX_HEARTBEAT_METRICS)}
                self._reading = Reading(time_s, x, named)
                self._values.add(encode_metrics(time_s=time_s, step=x, values=named))
        values: dict[str, float] = {}
        for source in self._sources:
            values.update(self._guard(source, partial(self._pull, source)) or {})
        for name, value in values.items():
            self._remember(name, value)
        self._values.add(encode_metrics(time_s=time.time(), step=self._step_of(None), values=values))
        for take in self._histogram_sources:
            for name, content in (self._guard(take, take) or {}).items():
                self._add_histogram(name, content)
        if self._dropped > self._reported_drops and self.is_connected:
            message = f"{self._dropped - self._reported_drops} lines of logs and metrics were dropped"
            self._reported_drops = self._dropped
            self._logs.add((encode_log(time_s=time.time(), level="WARNING", logger=__name__, message=message),))

    def _pull(self, source: MetricSource) -> dict[str, float]:
        return {metric_name(name, self.role): float(value) for name, value in source().items()}

    def _guard(self, source: Callable[[], object], read: Callable[[], T]) -> T | None:
        """Return `read()`, or None if it fails: a broken source must not silence the others."""
        try:
            return read()
        except Exception:
            if source not in self._failed_sources:
                self._failed_sources.add(source)
                logger.warning("metric source %r fails; this is said once", source, exc_info=True)
            return None

    def _heartbeat(self) -> Heartbeat:
        offset_s, (warned_s, warning) = self._shipper.offset_s, self.handler.last_warning
        return Heartbeat(
            id=self.id,
            role=self.role,
            name=self.name,
            pid=self._pid,
            host=self._host,
            started=self._started_s + offset_s,
            time=time.time() + offset_s,
            version=int(self.version),
            global_step=int(self.global_step),
            metrics=dict(self._latest),
            reading=self._reading._replace(time=self._reading.time + offset_s),
            waits_for=tuple(WAITS.texts()),
            hangs_in=self.hangs_in,
            warning=warning,
            warned=warned_s + offset_s if warning else 0.0,
        )
