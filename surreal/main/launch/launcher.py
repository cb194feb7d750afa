"""The launcher, `surreal run`: everything of a run on this machine, from its own Redis to its result.

Redis (if no address is given), then learner, agents and evaluation, each a process of its own that shares nothing but
Redis with the others. The launcher watches, shows progress, and ends the run in order: agents flush, the learner writes
a checkpoint, the evaluation scores once more, the log is drained, and Redis goes last.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import redis
from rich.console import Console

from surreal.distributed.telemetry.heartbeats import live_processes
from surreal.distributed.telemetry.telemetry import Telemetry
from surreal.errors import SurrealError
from surreal.main.launch.check import check_apart
from surreal.main.launch.collecting import LastCollection
from surreal.main.launch.outcome import RunOutcome, result_of
from surreal.main.launch.prepare import RunOptions, prepare
from surreal.main.launch.run_folder import newest_checkpoint
from surreal.main.launch.servers import RunServers
from surreal.main.launch.starting.starter import Starter
from surreal.main.launch.supervise import Child, Supervision
from surreal.main.launch.view.child_warnings import ChildWarnings
from surreal.main.launch.view.describe import describe_drain
from surreal.main.launch.view.progress import Progress
from surreal.main.launch.view.snapshot import Snapshot, take_snapshot
from surreal.main.process import registry
from surreal.main.process.arguments import REDIS_VARIABLE
from surreal.main.process.interrupts import Interrupts
from surreal.main.process.roles import AGENT, EVAL, LEARNER, RLX_SERVER, ROLES, NormalEnd, Role
from surreal.main.session.best import read_best

logger = logging.getLogger(__name__)

_POLL_INTERVAL_S = 0.1
_SNAPSHOT_INTERVAL_S = 0.5
#: What a snapshot may lack when a process has ended, and was true nevertheless.
_LASTING = ("episode_return", "eval_return", "best_return", "replay_fill", "samples_per_insert")
#: Agents end by themselves at max_env_steps; how long the learner may take to say so, s.
_ANNOUNCEMENT_S = 15.0


class Launcher:
    """One run, from start to result.

    Args:
        options: what was asked for.
        console: for progress.
        interrupts: installed by the caller.
        starter: starts the run's processes.

    Raises:
        ConfigError, CodecError: the options make no sense.
    """

    def __init__(self, options: RunOptions, console: Console, interrupts: Interrupts, starter: Starter) -> None:
        self._started_s = time.monotonic()
        self._started = time.time()
        self._options = options
        self._console = console
        self._interrupts = interrupts
        self._starter = starter
        self._prepared = prepared = prepare(options)
        self.config, self.run, self.folder = prepared.config, prepared.run, prepared.folder
        self._snapshot = Snapshot(())
        self._warnings = ChildWarnings({}, self._say_unless_quiet)

    def execute(self) -> RunOutcome:
        """Run it; returns when everything has ended.

        Raises:
            SurrealError: it could not be started.
        """
        with ExitStack() as stack:
            options = self._options
            is_silent = options.is_quiet or not options.shows_progress
            progress = stack.enter_context(Progress(self.run, self._console, is_quiet=is_silent))
            progress.phase("connecting to Redis" if options.redis or self.config.redis.address else "starting Redis")
            servers = RunServers(self.config, self.run, self.folder.path, self._options.redis, stack)
            client = servers.client
            progress.phase("checking what the configuration names")
            source, overrides = self._prepared.source, self._prepared.overrides
            check_apart(self._starter, source, overrides, should_abort=lambda: self._interrupts.is_draining)
            self._register(servers)
            self.folder.create(self.config, resume=self._options.resume)
            stack.callback(self.folder.remove_address)
            self.folder.write_address(servers.address, self.run)
            self._say_unless_quiet(f"run {self.run} in {self.folder.path}")
            progress.phase("starting processes")
            telemetry = Telemetry(client, "launcher", "launcher")
            telemetry.start()
            stack.callback(telemetry.stop)
            environment = {REDIS_VARIABLE: servers.address}
            supervision = Supervision(
                self._children(servers, stack),
                self._starter,
                log_dir=self.folder.path / "logs",
                environment=environment,
                restart_limit=self.config.run.restart_limit,
            )
            stack.callback(supervision.kill)
            self._warnings = ChildWarnings(supervision.consoles, self._say_unless_quiet, has_waits=is_silent)
            supervision.start()
            reason, is_failure = self._watch(servers, supervision, progress)
            with LastCollection(self._starter, self.run, self.folder.path, environment) as collection:
                self._drain(servers, supervision, reason, progress)
                progress.phase("draining: the last of the log is collected")
                telemetry.stop()
                if not self._interrupts.is_aborting:
                    collection.finish()
            self._warnings.poll()
            self._clear(servers, is_failure)
            outcome = self._finish(reason, is_failure, supervision.restarts)
            best_return = outcome.best["mean_return"] if outcome.best else None
            progress.finish(replace(self._snapshot, best_return=best_return))
            return outcome

    # -- before ----------------------------------------------------------------------------------------------------

    def _register(self, servers: RunServers) -> None:
        if self._options.resume:
            registry.clear_stop(servers.client)
        else:
            registry.require_fresh(servers.client, self.config.broadcast.policy, servers.parameter_client)
        registry.register(servers.client, self.config, servers.parameter_client)

    def _children(self, servers: RunServers, stack: ExitStack) -> list[Child]:
        common = ["--config", str(self.folder.config_path), "--run", self.run, "--run-dir", str(self.folder.path)]
        common += ["--supervised", *(["--resume"] if self._options.resume else [])]
        offline = [] if self._options.offline is None else ["--offline", str(self._options.offline.absolute())]
        arguments: dict[Role, Callable[[int], list[str]]] = {
            LEARNER: lambda _: [*common, *offline],
            AGENT: lambda number: [*common, "--index", str(number)],
            EVAL: lambda _: common,
        }
        if RLX_SERVER.count(self.config):
            from surreal.main.build.rlx_server import port_owner  # brings gymnasium, for the wrappers
            from surreal.main.launch.rlx_arguments import rlx_arguments

            arguments |= rlx_arguments(self.config, common, stack, self._say, owner=port_owner(servers.client))
        return [
            Child(role, number, arguments[role](number)) for role in ROLES for number in range(role.count(self.config))
        ]

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def _say_unless_quiet(self, text: str) -> None:
        if not self._options.is_quiet:
            self._say(text)

    # -- meanwhile -------------------------------------------------------------------------------------------------

    def _watch(self, servers: RunServers, supervision: Supervision, progress: Progress) -> tuple[str, bool]:
        """Look after the run until it ends; returns why, and whether that is a failure."""
        snapshot_s, agents_done_s = 0.0, time.monotonic()
        limit = self.config.run.max_time_s
        while True:
            if self._interrupts.is_draining:
                return f"interrupted by {self._interrupts.name}", False
            if limit is not None and self._elapsed_s >= limit:
                return f"max_time_s: {self._elapsed_s:.0f} s have passed", False
            servers.keep()
            failure = supervision.poll()
            self._warnings.poll()
            reason = self._stop_reason(servers)
            now = time.monotonic()
            if reason or now - snapshot_s >= _SNAPSHOT_INTERVAL_S:
                snapshot_s = now
                self._look(servers, progress)
            if reason:
                return reason, False
            if failure is not None:
                return failure, True
            if not supervision.are_finished(NormalEnd.ALL_END_RUN):
                agents_done_s = now
            elif now - agents_done_s >= _ANNOUNCEMENT_S:
                return f"the agents are done after {self._snapshot.env_steps} env steps", False
            time.sleep(_POLL_INTERVAL_S)

    def _stop_reason(self, servers: RunServers) -> str:
        """Why the run is to end, "" if it goes on; Redis may be away."""
        client = servers.client
        try:
            return client.retry(lambda: registry.stop_reason(client), what="read the run's state")
        except (SurrealError, redis.RedisError) as error:
            logger.debug("nobody knows whether the run is to end: %s", error)
            return ""

    def _look(self, servers: RunServers, progress: Progress) -> None:
        """Take a snapshot, if Redis is there."""
        try:
            snapshot = self._take_snapshot(servers)
        except (SurrealError, redis.RedisError) as error:
            logger.debug("no snapshot: %s", error)
            progress.phase(f"waiting for Redis at {servers.client.address}")
            return
        self._remember(snapshot)
        progress.show(snapshot)

    def _take_snapshot(self, servers: RunServers) -> Snapshot:
        return take_snapshot(
            servers.client,
            servers.replay,
            servers.parameter_client,
            policy=self.config.broadcast.policy,
        )

    def _remember(self, snapshot: Snapshot) -> None:
        """Keep the newest snapshot; what was counted stays counted, though Redis was emptied or a process is gone."""
        before = self._snapshot
        self._snapshot = replace(
            snapshot,
            env_steps=max(snapshot.env_steps, before.env_steps),
            updates=max(snapshot.updates, before.updates, newest_checkpoint(self.folder.path)),
            version=max(snapshot.version, before.version),
            **{name: getattr(before, name) for name in _LASTING if getattr(snapshot, name) is None},
        )

    # -- after -----------------------------------------------------------------------------------------------------

    def _drain(self, servers: RunServers, supervision: Supervision, reason: str, progress: Progress) -> None:
        try:
            registry.request_stop(servers.client, reason)
        except redis.RedisError as error:
            logger.warning("processes elsewhere were not told that the run ends: %s", error)

        def show(waiting: Sequence[Child]) -> None:
            self._warnings.poll()
            progress.phase(describe_drain([(child.name, child.role.last_work) for child in waiting]))

        supervision.drain(
            should_abort=lambda: self._interrupts.is_aborting,
            hanging={beat.pid for beat in self._snapshot.alive if beat.hangs_in and beat.host == socket.gethostname()},
            on_wait=show,
        )
        try:
            self._remember(self._take_snapshot(servers))
        except (SurrealError, redis.RedisError) as error:
            logger.debug("no last snapshot: %s", error)

    def _clear(self, servers: RunServers, is_failure: bool) -> None:
        """Give back the memory of a Redis that goes on; an interrupted or failed run may be resumed and keeps it."""
        if is_failure or self._interrupts.is_draining:
            return
        try:
            if not live_processes(servers.client):
                servers.delete_run()
        except (SurrealError, redis.RedisError) as error:
            logger.warning("the run's keys stay in Redis: %s", error)

    def _finish(self, reason: str, is_failure: bool, restarts: int) -> RunOutcome:
        best = read_best(self.folder.path / "eval")
        outcome = RunOutcome(
            self.run, self.folder.path, self.config, reason, is_failure,
            self._interrupts.is_draining, self._snapshot.env_steps, self._elapsed_s, best,
        )  # fmt: skip
        self.folder.write_result(result_of(outcome, self._snapshot, started=self._started, restarts=restarts))
        return outcome

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s
