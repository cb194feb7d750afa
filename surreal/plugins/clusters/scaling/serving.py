"""Serves the metrics of runs to Prometheus."""

from __future__ import annotations

import logging
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from surreal.base.errors import ConfigError, RedisUnavailableError, SurrealError, describe_os_error
from surreal.distributed.connection.client import RedisClient
from surreal.plugins.clusters.scaling.figures import FIGURES, processes_by_role
from surreal.run.process.interrupts import stop_at_signals
from surreal.run.view.reader import RunReader
from surreal.run.view.run_view import RunView

logger = logging.getLogger(__name__)

#: Timeout of one answer of Redis, s; a scrape has ten by default.
_TIMEOUT_S = 3.0


class RunCollector(Collector):
    """Reads the runs once for each scrape; simultaneous scrapes take turns."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._errors = 0
        self.is_away = False  #: whether Redis did not answer the last scrape
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            began_s = time.monotonic()
            found = self._read()
            took_s = time.monotonic() - began_s
            is_up, errors = not self.is_away, self._errors
        yield GaugeMetricFamily("surreal_redis_up", "1 if Redis answered this scrape, else 0.", value=is_up)
        yield GaugeMetricFamily("surreal_scrape_seconds", "Time to read from Redis.", value=took_s)
        yield CounterMetricFamily("surreal_scrape_errors_total", "Scrapes that Redis did not answer.", value=errors)
        if is_up:
            yield from self._read_server()
        for figure in FIGURES:
            make = CounterMetricFamily if figure.kind == "counter" else GaugeMetricFamily
            family = make(figure.name, figure.help, labels=("run",))
            for now in found:
                value = figure.read(now)
                if value is not None and math.isfinite(value):
                    family.add_metric((now.run,), value)
            yield family
        processes = GaugeMetricFamily("surreal_processes", "Processes that are alive.", labels=("run", "role"))
        for now in found:
            for role, count in sorted(processes_by_role(now).items()):
                processes.add_metric((now.run, role), count)
        yield processes

    def _read_server(self) -> Iterator[Metric]:
        """Yield what an operator watches of the server itself; a cluster, and a user without INFO, have none."""
        if self._reader.client.is_cluster:
            return
        try:
            info: Any = self._reader.client.redis.info()
        except RedisError as error:
            logger.debug("no figures of the server: %s", error)
            return
        is_written = info.get("aof_last_write_status") == info.get("aof_last_bgrewrite_status") == "ok"
        figures = {
            "memory_bytes": ("Memory that Redis uses.", info.get("used_memory")),
            "max_memory_bytes": ("Its maxmemory; 0: none.", info.get("maxmemory")),
            "appendonly_ok": ("1 if its append-only file is written, else 0.", is_written),
        }
        if not info.get("aof_enabled"):
            del figures["appendonly_ok"]
        for name, (text, value) in figures.items():
            if value is not None:
                yield GaugeMetricFamily(f"surreal_redis_{name}", text, value=value)

    def _read(self) -> list[RunView]:
        try:
            found = [view for view in self._reader.read_all() if view.alive]
        except (RedisError, SurrealError) as error:
            self._errors += 1
            logger.log(logging.DEBUG if self.is_away else logging.WARNING, "no figures: %s", error)
            self.is_away = True
            return []
        if self.is_away:
            logger.info("Redis answers again")
        self.is_away = False
        return found


def open_reader(address: str, run: str | None) -> RunReader:
    """Prepare to read one run of a Redis, or all of them; the server need not answer yet."""
    try:
        client = RedisClient(address, run=run or "default", timeout_s=_TIMEOUT_S)
        return RunReader(client, reads_all=run is None)
    except ValueError as error:
        raise ConfigError(str(error), key="--redis") from error


def page(reader: RunReader) -> str:
    """Return the metrics as a scrape would get them now."""
    registry, collector = CollectorRegistry(), RunCollector(reader)
    registry.register(collector)
    text = generate_latest(registry).decode()
    if collector.is_away:
        raise RedisUnavailableError(f"Redis at {reader.address} does not answer", address=reader.address)
    return text


def serve(
    reader: RunReader, *, host: str, port: int, on_ready: Callable[[str], object], stop: threading.Event | None = None
) -> None:
    """Serve until `stop` is set or a signal comes, then close the reader.

    Raises:
        ConfigError: the host is not valid.
        SurrealError: the address cannot be listened on.
    """
    registry = CollectorRegistry()
    registry.register(RunCollector(reader))
    stop = stop or stop_at_signals()
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except socket.gaierror as error:
        raise ConfigError(f"--host is {host!r}: {error.strerror}", key="--host") from error
    except OSError as error:
        raise SurrealError(f"cannot listen on {host} port {port}: {describe_os_error(error)}") from error
    try:
        on_ready(f"http://{f'[{host}]' if ':' in host else host}:{server.server_port}/metrics")
        stop.wait()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        reader.close()
