"""The launcher, `surreal run`: a run on this machine, from its own Redis to its result.

It starts Redis (if no address is given), the learner, agents and the evaluation: processes that share only Redis. It
shows progress, and ends the run in order: agents flush, the learner writes a checkpoint, the evaluation plays a last
round, the log is drained, and Redis ends.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import redis
from rich.console import Console

from surreal.base.errors import BusyError, FolderError, RedisUnavailableError, SurrealError
from surreal.config import fingerprint, load_config
from surreal.distributed.telemetry.telemetry import Telemetry
from surreal.run.build.checkpoints import go_back, read_best
from surreal.run.launch.check import RunOptions, check_apart, prepare
from surreal.run.launch.collecting import LastCollection
from surreal.run.launch.servers import RunServers
from surreal.run.launch.starting import Spawner
from surreal.run.launch.supervise import Child, Supervision, make_children
from surreal.run.process import registry
from surreal.run.process.arguments import REDIS_VARIABLE
from surreal.run.process.ending import Counts, Ending, ExitCode, result_of
from surreal.run.process.interrupts import Interrupts
from surreal.run.process.liveness import Claim, take_over
from surreal.run.process.roles import NormalEnd
from surreal.run.process.run_folder import last_metric
from surreal.run.view.live.child_warnings import ChildWarnings
from surreal.run.view.live.progress import Display
from surreal.run.view.live.text import describe_drain
from surreal.run.view.live.trend import RunLimits
from surreal.run.view.reader import RunReader, RunTracker
from surreal.run.view.run_view import RunOutcome

logger = logging.getLogger(__name__)

_POLL_INTERVAL_S = 0.1
_SNAPSHOT_INTERVAL_S = 0.5
#: Agents end by themselves at max_env_steps; longest time until the learner ends the run, s.
_ANNOUNCEMENT_S = 15.0


class Launcher:
    """One run, from start to result."""

    def __init__(self, options: RunOptions, console: Console, interrupts: Interrupts, starter: Spawner) -> None:
        self._started_s = time.monotonic()
        self._started = time.time()
        self._options = options
        self._console = console
        self._interrupts = interrupts
        self._starter = starter
        self._prepared = prepared = prepare(options)
        self.config, self.run, self.folder = prepared.config, prepared.run, prepared.folder
        self._warnings = ChildWarnings({}, self._say_unless_quiet)
        self._tracker: RunTracker

    def execute(self) -> RunOutcome:
        """Run until everything has ended; raises `SurrealError` or `StoppedError` if it could not begin."""
        with ExitStack() as stack:
            options = self._options
            is_silent = options.is_quiet or not options.shows_progress
            limits = RunLimits.of(self.config)
            progress = stack.enter_context(Display(self.run, self._console, limits, is_quiet=is_silent))
            self.folder.claim()
            stack.callback(self.folder.release)
            progress.phase("connecting to Redis" if options.redis or self.config.redis.address else "starting Redis")
            servers = RunServers(self.config, self.run, self.folder.path, options.redis, stack)
            reader = RunReader(
                servers.client,
                has_counts=True,
                is_patient=True,
                replay=servers.replay,
                parameter_client=servers.parameter_client,
                policy=self.config.published_policy,
            )
            self._tracker = RunTracker(reader.read, self.folder.path)
            progress.phase("checking what the configuration names")
            if not options.resume:
                self.folder.require_new()  # again, because the folder is claimed only now
            check_apart(
                self._starter,
                self._prepared.source,
                self._prepared.overrides,
                resumed=self.folder.path if options.resume else None,
                should_stop=lambda: self._interrupts.is_draining,
            )
            claim = Claim(servers.client, "launcher", fingerprint(self.config.shared()))
            stack.callback(claim.release)
            self._register(servers, claim)
            self._begin(servers)
            progress.phase("starting processes")
            telemetry = Telemetry(servers.client, "launcher", "launcher")
            telemetry.at_each_step(claim.try_take)
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
            self._warnings = ChildWarnings(
                supervision.consoles,
                self._say_unless_quiet,
                has_waits=is_silent,
                printing=[child.name for child in supervision.children if child.role.prints],
            )
            try:
                supervision.start()
                ending = self._watch(servers, supervision, progress)
                with LastCollection(self._starter, self.run, self.folder.path, environment) as collection:
                    ending = self._drain(servers, supervision, ending, progress)
                    progress.phase("draining: the last of the log is collected")
                    telemetry.stop()
                    collection.finish(lambda: self._interrupts.is_hurried)
                self._warnings.poll()
                if ending.exit_code is ExitCode.OK:  # an interrupted or failed run may be resumed
                    servers.clear(ended=supervision.pids)
            except KeyboardInterrupt:
                supervision.kill()
                asked = self._interrupts.ending or Ending("interrupted", ExitCode.INTERRUPTED)
                ending = asked._replace(reason=f"{asked.reason} three times: its processes were killed")
            outcome = self._finish(ending, supervision.restarts)
            best_return = outcome.best["mean_return"] if outcome.best else None
            view, counts = self._tracker.view, outcome.counts
            view = replace(view, updates=counts.updates, skipped_updates=counts.skipped_updates)
            progress.finish(replace(view, best_return=best_return), earlier_s=self.folder.earlier_s)
            return outcome

    # -- before ----------------------------------------------------------------------------------------------------

    def _begin(self, servers: RunServers) -> None:
        if self._options.resume and (words := go_back(self.config, self.folder.path)):
            # Only once: the next start resumes from the newest checkpoint.
            overrides = (*self._prepared.overrides, "checkpoint.restore=null")
            self.config = load_config(self._prepared.source, overrides)
            self._say(words)
        self.folder.begin(self.config, self.run, self._started)
        self.folder.write_address(servers.address, self.run)
        self._say_unless_quiet(f"run {self.run} in {self.folder.path}")
        refills = self._options.offline is None and not self.config.run.deterministic
        if self._options.resume and refills and not servers.has_experience():
            self._say("the replay is empty: it is filled again before learning continues")

    def _register(self, servers: RunServers, claim: Claim) -> None:
        if holder := claim.try_take():
            problem = f"run {self.run!r} is alive: its launcher is {holder}"
            raise BusyError(f"{problem}; `surreal agent` joins it, --run NAME begins another")
        if not self._options.resume:
            registry.require_fresh(servers.client, self.config.published_policy, servers.parameter_client)
        leader = registry.Registrant("launcher", leads=True)
        if registry.register(servers.client, self.config, leader, servers.parameter_client):
            take_over(claim, servers.replay, threading.Event())
        if self._options.resume:
            registry.clear_stop(servers.client)

    def _children(self, servers: RunServers, stack: ExitStack) -> list[Child]:
        common = ["--config", str(self.folder.config_path), "--run", self.run, "--run-dir", str(self.folder.path)]
        common += ["--supervised", *(["--resume"] if self._options.resume else [])]
        return make_children(
            self.config,
            servers.client,
            common,
            stack,
            self._say,
            config_path=self.folder.config_path,
            offline=self._options.offline,
        )

    def _say(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def _say_unless_quiet(self, text: str) -> None:
        if not self._options.is_quiet:
            self._say(text)

    # -- meanwhile -------------------------------------------------------------------------------------------------

    def _watch(self, servers: RunServers, supervision: Supervision, progress: Display) -> Ending:
        snapshot_s, agents_done_s = 0.0, time.monotonic()
        limit = self.config.run.max_time_s
        while True:
            if self._interrupts.ending is not None:
                return self._interrupts.ending
            if limit is not None and self._elapsed_s >= limit:
                return Ending(f"max_time_s: {self._elapsed_s:.0f} s have passed")
            try:
                servers.keep()
            except RedisUnavailableError as error:
                return Ending(str(error), ExitCode.FAILED)
            failure = supervision.poll()
            self._warnings.poll()
            if self._interrupts.checkpoint_request.take():
                supervision.ask_for_checkpoint()
            reason = self._stop_reason(servers, supervision)
            now = time.monotonic()
            if reason or now - snapshot_s >= _SNAPSHOT_INTERVAL_S:
                snapshot_s = now
                if self._tracker.look():
                    progress.show(self._tracker.view)
                else:
                    progress.phase(f"waiting for Redis at {servers.client.address}")
            if reason:
                return Ending(reason)
            if failure is not None:
                return Ending(failure, ExitCode.FAILED)
            if not supervision.are_finished(NormalEnd.ALL_END_RUN):
                agents_done_s = now
            elif now - agents_done_s >= _ANNOUNCEMENT_S:
                return Ending(f"the agents are done after {self._tracker.view.env_steps} env steps")
            time.sleep(_POLL_INTERVAL_S)

    def _stop_reason(self, servers: RunServers, supervision: Supervision) -> str:
        """Return the reason to end the run; "" if it continues or Redis is away."""
        if supervision.are_finished(NormalEnd.LAST_ENDS_RUN):
            return "all environments have played their episodes"
        client = servers.client
        try:
            return client.retry(lambda: registry.stop_reason(client), what="read the run's state")
        except (SurrealError, redis.RedisError) as error:
            logger.debug("it is unknown whether the run must end: %s", error)
            return ""

    # -- after -----------------------------------------------------------------------------------------------------

    def _drain(self, servers: RunServers, supervision: Supervision, ending: Ending, progress: Display) -> Ending:
        """End all processes in order; returns why the run ended, including a failure on the way."""

        def show(waiting: Sequence[Child]) -> None:
            self._warnings.poll()
            can_hurry = self._interrupts.is_draining and not self._interrupts.is_hurried
            works = [(child.name, child.role.last_work) for child in waiting]
            progress.phase(describe_drain(works, can_hurry=can_hurry))

        try:
            registry.request_stop(servers.client, ending.reason)
        except redis.RedisError as error:
            logger.warning("processes elsewhere were not told that the run ends: %s", error)
        problem = supervision.drain(
            is_hurried=lambda: self._interrupts.is_hurried,
            hanging={
                beat.pid for beat in self._tracker.view.alive if beat.hangs_in and beat.host == socket.gethostname()
            },
            on_wait=show,
        )
        self._tracker.look()
        return ending if problem is None else Ending(f"{ending.reason}; then {problem}", ExitCode.FAILED)

    def _finish(self, ending: Ending, restarts: int) -> RunOutcome:
        self.folder.sweep()
        best = read_best(self.folder.path / "eval")
        counts = Counts(
            self._tracker.view.env_steps,
            max(self._tracker.view.updates, int(last_metric(self.folder.path, "learner/updates_total"))),
            self._tracker.view.version,
            restarts,
            int(last_metric(self.folder.path, "learner/skipped_updates_total")),
            last_metric(self.folder.path, "learner/compile_cpu_s_total"),
            last_metric(self.folder.path, "learner/compile_saving_s_total"),
        )
        time_s = self.folder.earlier_s + self._elapsed_s
        try:
            self.folder.write_result(
                result_of(self.config, self.run, ending, started=self._started, time_s=time_s, counts=counts, best=best)
            )
        except FolderError as error:
            ending = Ending(f"{ending.reason}; then {error}", ExitCode.FAILED)
        return RunOutcome(self.run, self.folder.path, self.config, ending, counts, time_s, best)

    @property
    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s
