"""An RLX server: environments elsewhere connect by TCP or WebSocket, and an agent drives them.

    surreal rlx-server cartpole-rlx --run my-run --redis 127.0.0.1:6379
    surreal rlx-server --checkpoint runs/my-run/eval/best.safetensors --exploit

The first joins a run: experience goes to its replay, parameters come from its learner. The second serves a saved
policy, with neither a run nor Redis.
"""

from __future__ import annotations

import argparse
import logging
import resource
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from surreal.agent import AgentLoop
from surreal.agent.base import Agent
from surreal.config import Config, add_python_path
from surreal.config.checking.problems import explain
from surreal.config.loading.overrides import apply_overrides, parse_override
from surreal.errors import CheckpointError, ContractError
from surreal.main.agent import FIRST_PARAMETERS_S
from surreal.main.build.acting import (
    build_agent,
    build_greedy_agent,
    build_listener,
    build_model,
    build_sender,
    restore_model,
)
from surreal.main.build.environments import build_spaces
from surreal.main.build.rlx_server import ServerOptions, build_rlx_pool, build_server_settings, port_owner
from surreal.main.build.saved_policy import load_policy
from surreal.main.process.interrupts import set_at_signals
from surreal.main.process.lifeline import follow_parent
from surreal.main.process.reports import print_error
from surreal.main.process.role import RoleProcess, role_rng, run_role
from surreal.metrics import RateMeter
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.server.server import RlxServer
from surreal.rlx.server.settings import is_loopback
from surreal.utils.allocator import keep_freed_memory
from surreal.utils.logs import setup_logging

logger = logging.getLogger("surreal.main.rlx_server")  # __name__ is __main__ in a process of its own

#: Python's threads take turns; at its default of 5 ms an answer would wait that long for an agent that is busy.
_SWITCH_INTERVAL_S = 0.0005
_MAX_FILES = 1 << 16


def body(process: RoleProcess, options: ServerOptions) -> None:
    """Serve until the run ends."""
    config, telemetry = process.config, process.telemetry
    with ExitStack() as stack:
        pool = build_rlx_pool(config, options)
        stack.callback(pool.close)
        spaces = build_spaces(config, training=not options.is_exploiting)
        model = build_model(config, spaces)
        restore_model(config, model)
        if options.is_exploiting:
            agent = build_greedy_agent(config, model, spaces, rng=process.rng())
        else:
            agent = build_agent(config, model, spaces, index=process.index, rng=process.rng())
        stack.callback(agent.close)
        listener = build_listener(config, process.parameter_client, model)
        stack.callback(listener.close)
        listener.run_listener_thread()
        if not listener.wait_for_first(FIRST_PARAMETERS_S, process.stop):
            logger.info("no parameters yet; acting without")
        sender = None
        if spaces.obs_spec is None:
            logger.warning("env.observation_space is raw: states go to the agent as they come, nothing is recorded")
        elif not options.is_exploiting:
            sender = build_sender(
                config, process.replay, pool, process.stop, index=process.index, on_full=config.rlx.on_full
            )
            stack.callback(sender.close)
            telemetry.add_source(sender.metrics)
            telemetry.watch(global_step=lambda: sender.global_step)
        loop = AgentLoop(pool, agent, sender, on_episode=lambda score, length, _: telemetry.episode(score, length))
        rate = RateMeter("agent/steps_per_s")

        def speed() -> dict[str, float]:
            rate.total = loop.env_steps
            return rate.metrics()

        options = replace(options, owner=port_owner(process.client))

        def status() -> dict[str, Any]:
            exploration = agent.metrics().get("agent/epsilon")
            return {"run": process.client.run, "version": listener.version, "exploration": exploration}

        server = _start(config, pool, options, stack, on_metric=partial(_send_metric, process), status=status)
        for source in (loop.metrics, speed, pool.metrics, server.metrics, listener.metrics):
            telemetry.add_source(source)
        telemetry.watch(version=lambda: listener.version)
        limit = config.run.max_env_steps
        while not process.should_stop():
            if limit is not None and sender is not None and sender.global_step >= limit:
                logger.info("the run has its %d env steps", limit)
                break
            loop.step()
            listener.check()
            server.check()
        _end(server, loop)
        logger.info("acted for %d env steps and %d episodes", loop.env_steps, loop.episodes)


def serve_policy(path: Path, overrides: Sequence[str], stop: threading.Event, *, reuses_port: bool = False) -> None:
    """Serve a saved policy until `stop` is set.

    Args:
        path: of the file.
        overrides: settings that win over the file's, `key.path=value` each.
        stop: set it to end.
        reuses_port: share the port with other servers of the same file.

    Raises:
        SurrealError: the file, a setting, or the address does not work out.
    """
    policy = load_policy(path)
    config = _with_overrides(policy.config, overrides)
    add_python_path(config.python_path)
    options = ServerOptions(is_exploiting=True, reuses_port=reuses_port, owner=f"policy {path.resolve()}")
    with ExitStack() as stack:
        pool = build_rlx_pool(config, options)
        stack.callback(pool.close)
        spaces = build_spaces(config, training=False)
        model = build_model(config, spaces)
        try:
            model.load_tensors(policy.tensors, header=policy.header)
        except ContractError as error:
            raise CheckpointError(f"the file's parameters do not fit its configuration: {error}") from error
        agent: Agent = build_greedy_agent(config, model, spaces, rng=role_rng(config.seed, "rlx-server"))
        stack.callback(agent.close)
        loop = AgentLoop(pool, agent, None)
        server = _start(config, pool, options, stack, on_metric=None)
        while not stop.is_set():
            loop.step()
            server.check()
        _end(server, loop)


def _start(
    config: Config, pool: RlxEnvPool, options: ServerOptions, stack: ExitStack, *, on_metric: Any, status: Any = None
) -> RlxServer:
    """Listen, and say where."""
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
    _say(f"RLX at {host}:{server.port}{', TLS' if settings.tls is not None else ''}")
    if settings.static_dir is not None:
        _say(f"example page at {'http' if settings.tls is None else 'https'}://{host}:{server.port}/example/")
    return server


def _end(server: RlxServer, loop: AgentLoop) -> None:
    """Let the clients go, and hear from them a last time: their episodes are cut in order."""
    server.close()
    for _ in range(2):
        loop.step(timeout_s=0.0)


def _send_metric(process: RoleProcess, method: str, name: str, value: Any, step: int | None) -> None:
    if method == "histogram":
        process.telemetry.histogram(name, value, step)
    else:
        process.telemetry.scalar(name, value, step)


def _with_overrides(config: Config, overrides: Sequence[str]) -> Config:
    plain: dict[str, Any] = config.model_dump(mode="json", by_alias=True)
    places: dict[str, str] = {}
    apply_overrides(plain, places, [parse_override(text) for text in overrides])
    try:
        return Config.model_validate(plain).with_sources(places)
    except ValidationError as error:
        raise explain(Config, error, places, "") from error


def _raise_file_limit() -> None:
    """Allow as many connections as the system lets this user have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="surreal rlx-server", add_help=False, allow_abbrev=False)
    add = parser.add_argument_group("options of a server").add_argument
    add("--host", help="address to listen on (default: rlx.host, 127.0.0.1)")
    add("--port", type=int, help="port for TCP, WebSocket and HTTP; 0: a free one (default: rlx.port, 7001)")
    add("--timeout", type=float, metavar="S", help="close connections of this age at the end of an episode, s")
    add("--exploit", action="store_true", help="act as well as the agent can; nothing is learned")
    add("--checkpoint", type=Path, metavar="PATH", help="serve this policy, without a run; with --exploit")
    add("--demo", action="store_true", help="serve the example page as well")
    add("--reuse-port", action="store_true", help="share the port with other servers of the same run on this machine")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a server process; returns its exit code."""
    own, rest = _parser().parse_known_args(sys.argv[1:] if argv is None else list(argv))
    if {"-h", "--help"} & set(rest):
        _say(_parser().format_help())
    given = {"host": own.host, "port": own.port, "timeout_s": own.timeout, "demo": own.demo or None}
    overrides = [f"rlx.{key}={value}" for key, value in given.items() if value is not None]
    options = ServerOptions(is_exploiting=own.exploit, reuses_port=own.reuse_port)
    if own.checkpoint is None:
        rest += [part for override in overrides for part in ("--set", override)]
        return run_role("rlx-server", partial(body, options=options), rest, __doc__)
    return _serve_checkpoint(own, rest, overrides)


def _serve_checkpoint(own: argparse.Namespace, rest: Sequence[str], overrides: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="surreal rlx-server --checkpoint PATH --exploit", allow_abbrev=False)
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="override one setting of the file")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="warning")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    arguments = parser.parse_args(rest)
    if not own.exploit:
        parser.error("a saved policy is served as it is, nothing is learned: add --exploit")
    stop = threading.Event()
    set_at_signals(stop)
    follow_parent()
    keep_freed_memory()
    setup_logging(arguments.log_level, "rlx-server")
    try:
        serve_policy(own.checkpoint, [*arguments.set, *overrides], stop, reuses_port=own.reuse_port)
    except Exception as error:
        if arguments.debug:
            raise
        print_error(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
