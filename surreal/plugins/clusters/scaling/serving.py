"""`surreal metrics`: the figures on a port, until Ctrl-C or SIGTERM; or printed once."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from surreal.base.errors import ConfigError, RedisUnavailableError, SurrealError, describe_os_error
from surreal.base.system.program import install_command
from surreal.distributed.connection.client import RedisClient
from surreal.run.process.interrupts import set_at_signals
from surreal.run.view.reader import RunReader

#: Of one answer of Redis, s: a scrape has ten, by default.
_TIMEOUT_S = 3.0


def open_reader(address: str, run: str | None) -> RunReader:
    """Prepare to read one run of a Redis, or all of them; the server need not be there yet.

    Raises:
        ConfigError: the address or the run's name is none.
    """
    try:
        client = RedisClient(address, run=run or "default", timeout_s=_TIMEOUT_S)
        return RunReader(client, reads_all=run is None)
    except ValueError as error:
        raise ConfigError(str(error), key="--redis") from error


def page(reader: RunReader) -> str:
    """What a scrape would get now.

    Raises:
        ConfigError: prometheus_client is not installed.
        RedisUnavailableError: no answer.
    """
    with _needed():
        from prometheus_client import CollectorRegistry, generate_latest

        from surreal.plugins.clusters.scaling.collector import RunCollector
    registry, collector = CollectorRegistry(), RunCollector(reader)
    registry.register(collector)
    text = generate_latest(registry).decode()
    if collector.is_away:
        raise RedisUnavailableError(f"Redis at {reader.address} does not answer", address=reader.address)
    return text


def serve(
    reader: RunReader,
    *,
    host: str,
    port: int,
    on_ready: Callable[[str], object],
    stop: threading.Event | None = None,
) -> None:
    """Serve until a signal comes.

    Args:
        reader: of the runs; closed at the end.
        host: address to listen on.
        port: TCP port, 0 for a free one.
        on_ready: called with the page's address when it answers.
        stop: ends it; None: signals do.

    Raises:
        ConfigError: prometheus_client is not installed, or the host is none.
        SurrealError: nobody can listen there.
    """
    with _needed():
        from prometheus_client import CollectorRegistry, start_http_server

        from surreal.plugins.clusters.scaling.collector import RunCollector
    registry = CollectorRegistry()
    registry.register(RunCollector(reader))
    if stop is None:
        stop = threading.Event()
        set_at_signals(stop)
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


@contextmanager
def _needed() -> Iterator[None]:
    """Say which extra has what cannot be imported."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise ConfigError(f"metrics need prometheus_client; install it: {install_command('prometheus')}") from error
