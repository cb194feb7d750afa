"""Listening for environments elsewhere, in a run or for a saved policy."""

from __future__ import annotations

import logging
import resource
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace

from surreal.agent import AgentLoop
from surreal.config import Config
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.server.server import RlxServer
from surreal.rlx.server.settings import MetricSink, StatusSource, is_loopback
from surreal.run.build.rlx_server import ServerOptions, build_server_settings

logger = logging.getLogger(__name__)

#: Python's threads take turns; at its default of 5 ms an answer would wait that long for an agent that is busy.
_SWITCH_INTERVAL_S = 0.0005
_MAX_FILES = 1 << 16


def start_server(
    config: Config,
    pool: RlxEnvPool,
    options: ServerOptions,
    stack: ExitStack,
    *,
    on_metric: MetricSink | None,
    status: StatusSource | None = None,
) -> RlxServer:
    """Listen, and report the address.

    Raises:
        ConfigError, RlxServerError: a file or the address cannot be used.
    """
    _raise_file_limit()
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL_S))
    settings = replace(build_server_settings(config, options, on_metric, pool.reader), status=status)
    if not is_loopback(settings.host) and settings.token is None:
        logger.warning("%s is open to other machines, and asks for no token", settings.host)
    server = RlxServer(pool, settings)
    server.start()
    stack.callback(server.close)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    logger.info("listening on %s:%d", host, server.port)
    say(f"RLX at {host}:{server.port}{', TLS' if settings.tls is not None else ''}")
    url = f"{'http' if settings.tls is None else 'https'}://{host}:{server.port}"
    if settings.pages_dir is not None:
        say(f"page at {url}/app/")
    elif settings.static_dir is not None:
        say(f"example page at {url}/example/")
    return server


def end_server(server: RlxServer, loop: AgentLoop) -> None:
    """Close the clients' sessions in order; their episodes are cut."""
    server.close()
    for _ in range(2):
        loop.step(timeout_s=0.0)


def say(text: str) -> None:
    """Report the address to the parent process, also through a pipe."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _raise_file_limit() -> None:
    """Allow as many connections as the system lets this user have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
