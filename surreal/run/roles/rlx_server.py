"""An RLX server: environments elsewhere connect by TCP or WebSocket, and an agent drives them.

    surreal rlx-server cartpole-rlx --run my-run --redis 127.0.0.1:6379
    surreal rlx-server --checkpoint runs/my-run/eval/best.safetensors --exploit

The first joins a run: experience goes to its replay, parameters come from its learner. The second serves a saved
policy, with neither a run nor Redis.
"""

from __future__ import annotations

import logging
import resource
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from surreal.agent import Agent, AgentLoop
from surreal.base.contracts import StepSender
from surreal.base.errors import ConfigError, StoppedError, SurrealError
from surreal.base.system.logs import setup_logging
from surreal.base.system.process import keep_freed_memory
from surreal.config import Config, add_python_path
from surreal.config.loading import from_plain
from surreal.rlx.client.transport import parse_address
from surreal.rlx.pool.held_steps import HeldSteps
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.server.metrics import MetricSink
from surreal.rlx.server.server import RlxServer
from surreal.rlx.server.settings import StatusSource, is_loopback
from surreal.run.build.acting import build_rounds
from surreal.run.build.environments import build_spaces
from surreal.run.build.rlx_server import ServerOptions, build_rlx_pool, build_server_settings, port_owner
from surreal.run.build.saved_policy import load_policy
from surreal.run.lockstep.gradient_agent import GradientSession
from surreal.run.process.arguments import RoleArguments, option, parse_into, server_address
from surreal.run.process.ending import ExitCode, print_error
from surreal.run.process.interrupts import follow_parent, stop_at_signals
from surreal.run.process.role import RoleProcess, role_rng, run_role
from surreal.run.process.roles import RLX_SERVER, RandomStream
from surreal.run.session.acting import ActingSession, saved_agent

logger = logging.getLogger("surreal.run.roles.rlx_server")  # __name__ is __main__ in a separate process


def body(process: RoleProcess, options: ServerOptions) -> None:
    """Serve until the run ends."""
    config = process.config
    with ExitStack() as stack:
        pool = stack.enter_context(closing(build_rlx_pool(config, options)))
        pool.policies = _named_policies(config, stack, process.rng())
        options = replace(options, owner=port_owner(process.client))
        if config.has_parameter_servers and not options.is_exploiting:
            _compute(process, stack, pool, options)
            return
        spaces, is_greedy = build_spaces(config, training=not options.is_exploiting), options.is_exploiting
        # The number of sessions is unknown: a round is a whole batch from any sessions.
        can_wait = config.rlx.on_full == "wait" and not is_greedy
        rounds = build_rounds(config, process.should_stop, sessions=config.learner.batch_size) if can_wait else None
        held: list[HeldSteps] = []

        def hold(sender: StepSender) -> StepSender:
            held.append(HeldSteps(sender, pool.take_final))
            return held[0]

        session = ActingSession(
            process, stack, pool, spaces, is_greedy=is_greedy, on_full=config.rlx.on_full, rounds=rounds,
            around_sender=hold if config.rlx.max_amend_s else None,
        )  # fmt: skip
        server = _listen(process, stack, pool, options, session.status)
        session.run(server.check)
        end_server(server, session.loop)
        for steps in held:
            steps.release()
        # Also steps that are not recorded: those of raw states, and of sessions that exploit.
        counts = pool.metrics()
        logger.info("acted for %d env steps and %d episodes", counts["env/steps_total"], counts["env/episodes_total"])


def _compute(process: RoleProcess, stack: ExitStack, pool: RlxEnvPool, options: ServerOptions) -> None:
    """Serve until the run ends, and compute gradients of the sessions' experience."""
    with suppress(StoppedError):
        session = GradientSession(process, stack, pool)
        server = _listen(process, stack, pool, options, session.status)
        session.run(server.check)
        logger.info("acted for %d env steps and %d episodes", session.env_steps, session.episodes)


def _listen(
    process: RoleProcess, stack: ExitStack, pool: RlxEnvPool, options: ServerOptions, status: StatusSource
) -> RlxServer:
    def on_metric(method: str, name: str, value: Any, step: int | None) -> None:
        if method == "histogram":
            process.telemetry.histogram(name, value, step)
        else:
            process.telemetry.scalar(name, value, step)

    server = start_server(process.config, pool, options, stack, on_metric=on_metric, status=status)
    process.telemetry.add_source(server.metrics)
    return server


def serve_policy(
    path: Path, overrides: Sequence[str], stop: threading.Event, *, reuses_port: bool = False, trust: bool = False
) -> None:
    """Serve the saved policy in a file, with overrides of its settings, until `stop` is set; `trust` as in
    `surreal.load`. With `reuses_port`, other servers of the file share its port.
    """
    policy = load_policy(path, trust=trust)
    config = from_plain(policy.config.model_dump(mode="json", by_alias=True), overrides, "")
    add_python_path(config.python_path)
    options = ServerOptions(is_exploiting=True, reuses_port=reuses_port, owner=f"policy {path.resolve()}")
    with ExitStack() as stack:
        pool = stack.enter_context(closing(build_rlx_pool(config, options)))
        spaces = build_spaces(config, training=False)
        agent = saved_agent(policy, config, spaces, rng=role_rng(config.seed, RandomStream.RLX_SERVER))
        stack.callback(agent.close)
        pool.policies = _named_policies(config, stack, role_rng(config.seed, RandomStream.RLX_SERVER), trust=trust)
        loop = AgentLoop(pool, agent, None)
        server = start_server(config, pool, options, stack, on_metric=None)
        while not stop.is_set():
            loop.step()
            server.check()
        end_server(server, loop)


def _named_policies(
    config: Config, stack: ExitStack, rng: np.random.Generator, *, trust: bool = False
) -> dict[str, Agent]:
    """Make the agents of `rlx.policies`, which all have the server's spaces."""
    policies: dict[str, Agent] = {}
    for name, source in config.rlx.policies.items():
        try:
            policy = load_policy(source, trust=trust)
            policies[name] = saved_agent(policy, policy.config, build_spaces(config, training=False), rng=rng)
        except SurrealError as error:
            raise config.refusal("rlx.policies", f"rlx.policies.{name}: {error}") from error
        stack.callback(policies[name].close)
    return policies


_PORT_HELP = "Port for TCP, WebSocket and HTTP; 0: a free one; default: rlx.port, 7001."
_TIMEOUT_HELP = "Close connections of this age at the end of an episode, s."
_TRUST_HELP = "Import the classes and folders that the policy names; this runs their code."
_REUSE_HELP = "Share the port with other servers of the run on this machine."
#: Options for the run to join.
_OF_A_RUN = frozenset(
    ("--config", "--connect-timeout", "--index", "--once", "--redis", "--resume", "--run", "--run-dir", "--stay")
)


@dataclass(frozen=True)
class ServerArguments(RoleArguments):
    """Arguments of a server process."""

    host: Annotated[str | None, option("HOST", "Address to listen on; default: rlx.host, 127.0.0.1.")] = None
    port: Annotated[int | None, option("N", _PORT_HELP)] = None
    bind: Annotated[str | None, option("HOST:PORT", "The same as --host and --port.", parser=server_address)] = None
    timeout_s: Annotated[float | None, option("S", _TIMEOUT_HELP, "--timeout")] = None
    exploit: Annotated[bool, option(None, "Act as well as the agent can; nothing is learned.", "--exploit")] = False
    checkpoint: Annotated[Path | None, option("PATH", "Serve this policy, without a run; needs --exploit.")] = None
    trust: Annotated[bool, option(None, _TRUST_HELP, "--trust")] = False
    demo: Annotated[bool, option(None, "Also serve the example page.", "--demo")] = False
    reuse_port: Annotated[bool, option(None, _REUSE_HELP, "--reuse-port")] = False

    def with_settings(self) -> ServerArguments:
        """Return the arguments with overrides for those that set a setting."""
        place = None if self.bind is None else parse_address(self.bind)
        settings = {
            "host": self.host if place is None else place.host,
            "port": self.port if place is None else place.port,
            "timeout_s": self.timeout_s,
            "demo": self.demo or None,
        }
        given = [f"rlx.{key}={value}" for key, value in settings.items() if value is not None]
        return replace(self, overrides=(*self.overrides, *given))


def main(argv: Sequence[str] | None = None) -> int:
    """Run a server process; returns its exit code."""
    arguments = parse_into(ServerArguments, RLX_SERVER, argv).with_settings()
    if arguments.checkpoint is not None:
        return _serve_checkpoint(arguments, arguments.checkpoint)
    options = ServerOptions(is_exploiting=arguments.exploit, reuses_port=arguments.reuse_port)
    return run_role(RLX_SERVER, partial(body, options=options), arguments)


def _serve_checkpoint(arguments: ServerArguments, path: Path) -> int:
    refusal = None if arguments.exploit else "a saved policy is served as it is, nothing is learned: add --exploit"
    words = [word.partition("=")[0] for word in arguments.argv]
    of_a_run = next((word for word in words if word in _OF_A_RUN), arguments.preset)
    if of_a_run is not None:
        refusal = f"--checkpoint serves a policy without a run; leave out {of_a_run} or --checkpoint"
    if refusal is not None:
        print_error(ConfigError(refusal, key="--checkpoint"))
        return ExitCode.USAGE
    stop = stop_at_signals()
    follow_parent()
    keep_freed_memory()
    setup_logging(arguments.log_level or "warning", "rlx-server")
    try:
        serve_policy(path, arguments.overrides, stop, reuses_port=arguments.reuse_port, trust=arguments.trust)
    except Exception as error:
        if arguments.debug:
            raise
        print_error(error)
        return 1
    return 0


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
    """Listen, and report the address; raises `ConfigError` or `RlxServerError` if that cannot be done."""
    _raise_file_limit()
    sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH_INTERVAL_S))
    settings = replace(build_server_settings(config, options, on_metric, pool.reader), status=status)
    if not is_loopback(settings.host) and not settings.needs_token:
        logger.warning("%s is open to other machines, and asks for no token", settings.host)
    server = RlxServer(pool, settings)
    server.start()
    stack.callback(server.close)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    logger.info("listening on %s:%d", host, server.port)
    typer.echo(f"RLX at {host}:{server.port}{', TLS' if settings.tls is not None else ''}")
    url = f"{'http' if settings.tls is None else 'https'}://{host}:{server.port}"
    if settings.pages_dir is not None:
        typer.echo(f"page at {url}/app/")
    elif settings.static_dir is not None:
        typer.echo(f"example page at {url}/example/")
    return server


def end_server(server: RlxServer, loop: AgentLoop) -> None:
    """Close the clients' sessions in order; their episodes are cut."""
    server.close()
    for _ in range(2):
        loop.step(timeout_s=0.0)


def _raise_file_limit() -> None:
    """Allow as many connections as the system lets this user have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    sys.exit(main())
