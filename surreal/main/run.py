"""The launcher, `surreal run`: everything of a run on this machine, from its own Redis to its result.

Redis (if no address is given), then learner, agents and evaluation, each a process of its own that shares nothing but
Redis with the others. The launcher watches, shows progress, and ends the run in order: agents flush, the learner writes
a checkpoint, the evaluation scores once more, the log is drained, and Redis goes last.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import redis
from rich.console import Console

from surreal.config import Config, add_python_path, load_config
from surreal.distributed.client import RedisClient
from surreal.distributed.collector import Collector
from surreal.distributed.processes import live_processes
from surreal.distributed.server import EmbeddedRedis
from surreal.distributed.telemetry import Telemetry
from surreal.errors import ConfigError, RedisUnavailableError, SurrealError
from surreal.main import registry
from surreal.main.arguments import REDIS_VARIABLE
from surreal.main.interrupts import Interrupts
from surreal.main.outcome import RunOutcome, result_of
from surreal.main.progress import Progress
from surreal.main.run_folder import RUNS_FOLDER, RunFolder, new_run_id, newest_checkpoint
from surreal.main.scores import read_best
from surreal.main.snapshot import Snapshot, take_snapshot
from surreal.main.supervise import Child, Supervision

logger = logging.getLogger(__name__)

_POLL_INTERVAL_S = 0.1
_SNAPSHOT_INTERVAL_S = 0.5
_CONNECT_TIMEOUT_S = 5.0
#: Agents end by themselves at max_env_steps; how long the learner may take to say so, s.
_ANNOUNCEMENT_S = 5.0
#: How long each kind of process may drain, s.
_AGENT_DRAIN_S, _LEARNER_DRAIN_S, _EVAL_DRAIN_S = 15.0, 60.0, 20.0


@dataclass(frozen=True)
class RunOptions:
    """What `surreal run` was asked for."""

    source: str | None
    overrides: tuple[str, ...] = ()
    run: str | None = None
    run_dir: Path | None = None
    redis: str | None = None
    resume: bool = False
    is_quiet: bool = False


class Launcher:
    """One run, from start to result.

    Args:
        options: what was asked for.
        console: for progress.
        interrupts: installed by the caller.
    """

    def __init__(self, options: RunOptions, console: Console, interrupts: Interrupts) -> None:
        self._started_s = time.monotonic()
        self._started = time.time()
        self._options = options
        self._console = console
        self._interrupts = interrupts
        self.config, self.run, self.folder = _prepare(options)
        self._server: EmbeddedRedis | None = None
        self._server_restarts = 0
        self._replay_client: RedisClient | None = None
        self._snapshot = Snapshot(())

    def execute(self) -> RunOutcome:
        """Run it; returns when everything has ended.

        Raises:
            SurrealError: it could not be started.
        """
        with ExitStack() as stack:
            client = self._connect(stack)
            self._register(client)
            self.folder.create(self.config, resume=self._options.resume)
            stack.callback(self.folder.remove_address)
            self.folder.write_address(self._address, self.run)
            collector = Collector(client, self.folder.path)
            stack.callback(collector.close)
            telemetry = Telemetry(client, "launcher", "launcher")
            telemetry.start()
            stack.callback(telemetry.stop)
            supervision = Supervision(
                self._children(),
                log_dir=self.folder.path / "logs",
                environment={REDIS_VARIABLE: self._address, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")},
                restart_limit=self.config.run.restart_limit,
            )
            stack.callback(supervision.kill)
            supervision.start()
            with Progress(self.run, self._console, is_quiet=self._options.is_quiet) as progress:
                reason, is_failure = self._watch(client, supervision, progress)
            self._drain(client, supervision, reason)
            telemetry.stop()
            if not self._interrupts.is_aborting:
                collector.drain()
            self._clear(client, is_failure)
            return self._finish(reason, is_failure, supervision.restarts)

    # -- before ----------------------------------------------------------------------------------------------------

    def _connect(self, stack: ExitStack) -> RedisClient:
        address = self._options.redis or self.config.redis.address
        if address is None:
            appendonly = self.folder.path / "redis" if self.config.redis.appendonly else None
            self._server = EmbeddedRedis(maxmemory_bytes=self.config.redis.maxmemory, appendonly_dir=appendonly)
            stack.callback(self._server.stop)
            self._server.start()
            address = self._server.address
        self._address = address
        client = RedisClient(address, run=self.run, retry_timeout_s=2.0)
        stack.callback(client.close)
        client.check_server(timeout_s=_CONNECT_TIMEOUT_S)
        if self.config.redis.replay_address is not None:
            self._replay_client = RedisClient(self.config.redis.replay_address, run=self.run, retry_timeout_s=2.0)
            stack.callback(self._replay_client.close)
        return client

    def _register(self, client: RedisClient) -> None:
        if self._options.resume:
            registry.clear_stop(client)
        else:
            registry.require_fresh(client, self.config.broadcast.policy)
        registry.register(client, self.config)

    def _children(self) -> list[Child]:
        common = ["--config", str(self.folder.config_path), "--run", self.run, "--run-dir", str(self.folder.path)]
        common += ["--supervised", *(["--resume"] if self._options.resume else [])]
        children = [Child("learner", "learner", _command("learner", common))]
        for index in range(self.config.agent.count):
            children.append(Child(f"agent-{index}", "agent", _command("agent", [*common, "--index", str(index)])))
        if self.config.eval.enabled:
            children.append(Child("eval", "eval", _command("eval", common)))
        return children

    # -- meanwhile -------------------------------------------------------------------------------------------------

    def _watch(self, client: RedisClient, supervision: Supervision, progress: Progress) -> tuple[str, bool]:
        """Look after the run until it ends; returns why, and whether that is a failure."""
        snapshot_s, agents_done_s = 0.0, time.monotonic()
        limit = self.config.run.max_time_s
        while True:
            if self._interrupts.is_draining:
                return f"interrupted by {self._interrupts.name}", False
            if limit is not None and self._elapsed_s >= limit:
                return f"max_time_s: {self._elapsed_s:.0f} s have passed", False
            self._keep_server()
            failure = supervision.poll()
            now = time.monotonic()
            if failure is not None or now - snapshot_s >= _SNAPSHOT_INTERVAL_S:
                snapshot_s = now
                reason = self._look(client, progress)
                if reason:
                    return reason, False
            if failure is not None:
                return failure, True
            if not supervision.is_finished("agent"):
                agents_done_s = now
            elif now - agents_done_s >= _ANNOUNCEMENT_S:
                return f"the agents are done after {self._snapshot.env_steps} env steps", False
            time.sleep(_POLL_INTERVAL_S)

    def _look(self, client: RedisClient, progress: Progress) -> str:
        """Take a snapshot; returns why the run is to end, "" if it goes on. Redis may be away."""
        try:
            reason = client.retry(lambda: registry.stop_reason(client), what="read the run's state")
            snapshot = self._take_snapshot(client)
        except (SurrealError, redis.RedisError) as error:
            logger.debug("no snapshot: %s", error)
            return ""
        self._remember(snapshot)
        progress.show(snapshot)
        return reason

    def _take_snapshot(self, client: RedisClient) -> Snapshot:
        return take_snapshot(client, self._replay_client, self.config.broadcast.policy)

    def _remember(self, snapshot: Snapshot) -> None:
        """Keep the newest snapshot; what was counted stays counted, though Redis was emptied or a process is gone."""
        before = self._snapshot
        self._snapshot = replace(
            snapshot,
            env_steps=max(snapshot.env_steps, before.env_steps),
            updates=max(snapshot.updates, before.updates, newest_checkpoint(self.folder.path)),
            version=max(snapshot.version, before.version),
        )

    def _keep_server(self) -> None:
        if self._server is None or self._server.is_alive:
            return
        if self._server_restarts >= self.config.run.restart_limit:
            raise RedisUnavailableError(f"redis-server ended {self._server_restarts + 1} times; see its log")
        self._server_restarts += 1
        logger.warning("redis-server ended; starting it again")
        self._server.restart()

    # -- after -----------------------------------------------------------------------------------------------------

    def _drain(self, client: RedisClient, supervision: Supervision, reason: str) -> None:
        try:
            registry.request_stop(client, reason)
        except redis.RedisError as error:
            logger.warning("processes elsewhere were not told that the run ends: %s", error)
        for role, timeout_s in (("agent", _AGENT_DRAIN_S), ("learner", _LEARNER_DRAIN_S), ("eval", _EVAL_DRAIN_S)):
            supervision.stop(role, timeout_s, should_abort=lambda: self._interrupts.is_aborting)
        try:
            self._remember(self._take_snapshot(client))
        except (SurrealError, redis.RedisError) as error:
            logger.debug("no last snapshot: %s", error)

    def _clear(self, client: RedisClient, is_failure: bool) -> None:
        """Give back the memory of a Redis that goes on; an interrupted or failed run may be resumed and keeps it."""
        if self._server is not None or is_failure or self._interrupts.is_draining:
            return
        try:
            if not live_processes(client):
                client.delete_run()
        except (SurrealError, redis.RedisError) as error:
            logger.warning("the run's keys stay in Redis: %s", error)

    def _finish(self, reason: str, is_failure: bool, restarts: int) -> RunOutcome:
        best = read_best(self.folder.path)
        outcome = RunOutcome(
            self.run, self.folder.path, self.config, reason, is_failure,
            self._interrupts.is_draining, self._snapshot.env_steps, self._elapsed_s,
        )  # fmt: skip
        self.folder.write_result(result_of(outcome, best, self._snapshot, started=self._started, restarts=restarts))
        return outcome

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s


def _command(role: str, arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", f"surreal.main.{role}", *arguments]


def _prepare(options: RunOptions) -> tuple[Config, str, RunFolder]:
    """Load the configuration, and decide on the run's id and folder."""
    source = options.source
    if source is None:
        if not options.resume or options.run_dir is None:
            raise ConfigError("name a preset or a file, or resume a run with --resume --run-dir DIR")
        source = str(RunFolder(options.run_dir).config_path)
    if options.resume and options.run is None and options.run_dir is None:
        raise ConfigError("--resume needs the run to go on with: --run NAME or --run-dir DIR", key="--resume")
    config = load_config(source, options.overrides)
    add_python_path(config.python_path)
    run = options.run or (options.run_dir.absolute().name if options.resume and options.run_dir else None)
    run = run or new_run_id(config.name)
    try:
        RedisClient(run=run)
    except ValueError as error:
        raise ConfigError(str(error), key="--run") from error
    folder = RunFolder(options.run_dir or RUNS_FOLDER / run)
    if options.resume and not folder.config_path.exists():
        raise ConfigError(f"{folder.path} holds no run to resume", key="--resume")
    return config, run, folder
