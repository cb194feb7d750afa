"""The frame of a role process: arguments, configuration, connections, agreement, telemetry, signals, exit code.

    def body(process: RoleProcess) -> None:
        ...
        while not process.should_stop():
            work()

    def main(argv=None) -> int:
        return run_role(AGENT, body, parse(AGENT, argv))

Exit codes: 0 the work was done or a stop was asked for, else see `ending.ExitCode`. An error is one line on stderr.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import redis

from surreal.base.errors import ConfigError, ContractError, NameLostError, StoppedError, SurrealError
from surreal.base.system.files import take_user
from surreal.base.system.health import MAIN_LOOP, HealthFile, Pulse, Startup, health_path, look_at_loops
from surreal.base.system.logs import setup_logging
from surreal.base.system.process import keep_freed_memory
from surreal.config import fingerprint
from surreal.distributed.telemetry.heartbeats import live_processes
from surreal.distributed.telemetry.telemetry import Telemetry
from surreal.run.observers.making import make_callbacks
from surreal.run.process import registry
from surreal.run.process.arguments import RoleArguments
from surreal.run.process.attributes import EnvironmentAttributes
from surreal.run.process.ending import Ending, ExitCode, error_line, exit_code_of, is_expected, print_error
from surreal.run.process.finding import connect_role, connect_servers
from surreal.run.process.interrupts import CheckpointRequest, follow_parent, set_at_signals
from surreal.run.process.liveness import Claim, make_watchdog, stay, take_first_free, take_over
from surreal.run.process.roles import AGENT, LEARNER, RLX_SERVER, RandomStream, Role, refusal_of
from surreal.run.process.run_folder import RunFolder

logger = logging.getLogger(__name__)


class RoleProcess:
    """The process as the body of its role sees it: configuration, clients, telemetry, and when to stop."""

    def __init__(
        self,
        role: Role,
        arguments: RoleArguments,
        stop: threading.Event,
        signals: Sequence[signal.Signals] = (),
        checkpoint_request: CheckpointRequest | None = None,
    ) -> None:
        self.role = role
        self.arguments = arguments
        self.stop = stop  #: set by SIGTERM, SIGINT, and (without a launcher) the run's stop key
        self.signals = signals
        self.checkpoint_request = checkpoint_request or CheckpointRequest()
        self.rank = 0 if arguments.place is None else arguments.place.rank
        #: client: the run's Redis: configuration, heartbeats, log
        self.config, self.client = connect_role(role, arguments, stop)
        if (refusal := refusal_of(role, self.config)) is not None:
            raise ConfigError(refusal[1], key=refusal[0])
        self.run_dir = arguments.run_dir or Path("runs") / self.client.run
        #: replay: replay servers; the same as `client` unless others are named
        #: parameter_client: parameter server; the same as `client` unless another is named
        self.replay, self.parameter_client = connect_servers(self.config, self.client, arguments, stop)
        self.index, self._claim = self._claim_number()
        self.name = role.process_name(self.index, self.rank)
        # The telemetry thread notices the stop: the main thread may wait for a full replay.
        self.telemetry = Telemetry(self.client, role.counts_as, self.name, on_stop=self._end)
        self.startup = Startup()
        self.startup.watch_lease(lambda: self._claim.waited_s)
        self.telemetry.add_source(self.startup.metrics)
        self._pulse = Pulse(MAIN_LOOP)
        self._watchdog = make_watchdog(self.config, self.telemetry, stop, self._end_hanging_run)
        is_first = not (self._is_follower or self.rank or self.index)
        self._registrant = registry.Registrant(self._claim.name, leads=role.leads and is_first)
        self.failure: SurrealError | None = None  #: its disagreement with the run, or the loss of its name
        self._stop_reason: str | None = None  # known here before the telemetry has read it
        self._endings: list[Callable[[], object]] = []
        named = {"run": self.client.run, "process": self.name, "run_dir": self.run_dir, "seed": self.config.seed}
        #: attributes of environments, which callbacks set and agents follow
        self.attributes = EnvironmentAttributes(self.config, self.client)
        self.callbacks = make_callbacks(self.config, self.request_stop, self.attributes.set, **named)

    def join_run(self) -> None:
        """Claim the name, agree with the run, and start telemetry. Raises `ConfigError` if the run is finished and not
        to be resumed, `ContractError` if its live processes use another configuration, `StoppedError` if it has ended.
        """
        reason = registry.stop_reason(self.client) if self.arguments.stay or self.arguments.once else None
        if reason:
            self._stop_reason = reason
            # A learner that was killed or drained after its run's end must still write the result.
            if not (self._registrant.leads and RunFolder(self.run_dir).is_without_result()):
                raise StoppedError(f"run {self.client.run} has ended: {reason}")
        if not self.arguments.supervised:
            if self.arguments.resume:
                if not reason and registry.stop_reason(self.client) and not live_processes(self.client):
                    registry.clear_stop(self.client)
            else:
                registry.require_fresh(self.client, self.config.published_policy, self.parameter_client)
        self._claim.take(self.stop, is_one_of_many=self.role in (AGENT, RLX_SERVER))
        agree = partial(registry.register, self.client, self.config, self._registrant, self.parameter_client, self.stop)
        if self.client.retry(agree, what="agree with the run", stop=self.stop):
            take_over(self._claim, self.replay, self.stop)
        self.telemetry.at_each_step(self._stay)
        self.telemetry.at_each_step(self.attributes.update)
        self.telemetry.start()
        self._watchdog.start()

    def rng(self, *key: int) -> np.random.Generator:
        """Make a generator for this process from the run's seed, its role and its index."""
        if self.role.stream is None:
            raise ValueError(f"the role {self.role.name} has no stream of random numbers")
        return role_rng(self.config.seed, self.role.stream, self.index, *((self.rank,) if self.rank else ()), *key)

    def at_end(self, action: Callable[[], object]) -> None:
        self._endings.append(action)

    def request_stop(self, reason: str) -> None:
        """End the run for this reason; an earlier reason stays."""

        def ask() -> str:
            registry.request_stop(self.client, reason)
            return registry.stop_reason(self.client)

        self._stop_reason = self.client.retry(ask, what="end the run", stop=self.stop)

    def should_stop(self) -> bool:
        """Whether the body has to end; called in each iteration of its loop."""
        self.turn()
        return self.stop.is_set()

    def turn(self) -> None:
        """Report an iteration that does not call `should_stop`."""
        self._pulse.has_turned = True

    @property
    def stop_reason(self) -> str | None:
        return self.telemetry.stop_reason or self._stop_reason

    def ending(self, error: Exception | None = None) -> Ending:
        """Return the reason and exit code for ending now, perhaps by an exception."""
        error = error or self.failure
        if error is not None:
            return Ending(f"{self.name} failed: {error_line(error)}", exit_code_of(error))
        if (reason := self.stop_reason) is not None:
            return Ending(reason)
        if self.signals and not self.arguments.supervised:
            first = self.signals[0]
            return Ending(f"interrupted by {first.name}", ExitCode(128 + first))
        return Ending(f"the {self.name} is done")

    def close(self) -> None:
        self.callbacks.close()
        self.telemetry.stop()
        for ending in self._endings:
            ending()
        self._watchdog.stop()
        self._pulse.close()
        self._claim.release()
        self.replay.close()
        self.parameter_client.close()
        self.client.close()

    def _end(self, reason: str) -> None:
        # A launcher stops its children in order: agents, learner, evaluation.
        if not self.arguments.supervised:
            logger.info("the run ends: %s", reason)
            self.stop.set()

    def _end_hanging_run(self, reason: str) -> None:
        if not self.arguments.supervised:  # else the exit code tells the launcher
            registry.request_stop(self.client, reason)

    def _stay(self) -> None:
        """Renew the claim and compare with the run; on the telemetry thread."""
        if self.failure is not None:
            return
        try:
            holder = self._claim.try_take()
            registry.compare(self.client, self.config, self._registrant)
        except (ContractError, ConfigError) as error:
            self._fail(error)
        except (redis.RedisError, SurrealError) as error:
            logger.debug("the claim of %s was not renewed: %s", self.name, error)
        else:
            if holder:
                self._fail(NameLostError(f"{holder} is {self.name} of run {self.client.run} by now: this one was away"))

    def _fail(self, error: SurrealError) -> None:
        self.failure = error
        self.stop.set()

    @property
    def _is_follower(self) -> bool:
        return self.role is LEARNER and self.config.replay.follow

    def _claim_number(self) -> tuple[int, Claim]:
        """Return the number of this process, the first free one if none was given, and the claim of its name."""
        shared = fingerprint(self.config.shared())
        suffix = f"-{self.config.broadcast.policy}" if self._is_follower else ""

        def claim_of(index: int) -> Claim:
            return Claim(self.client, f"{self.role.process_name(index, self.rank)}{suffix}", shared)

        index = self.arguments.index
        return take_first_free(claim_of, self.client, self.stop) if index is None else (index, claim_of(index))


def role_rng(seed: int, stream: RandomStream, *key: int) -> np.random.Generator:
    """Make a generator that differs between roles and processes, and repeats with the seed."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(stream), *key)))


def run_role(role: Role, body: Callable[[RoleProcess], None], arguments: RoleArguments) -> int:
    """Run a role process from its arguments to its exit code; a child of a launcher that drained returns 0."""
    stop = threading.Event()
    signals = set_at_signals(stop, is_abortable=True)
    checkpoint_request = CheckpointRequest()
    checkpoint_request.listen()
    follow_parent()
    keep_freed_memory()
    take_user(role.user, os.environ)
    setup_logging(arguments.log_level or "INFO", role.name)
    # A launcher watches its own children; only the first rank of a learner has a health file.
    is_asked = not arguments.supervised and (arguments.place is None or arguments.place.rank == 0)
    with HealthFile(role.name, partial(look_at_loops, stop), health_path(os.environ) if is_asked else None) as health:
        try:
            return _take_part(RoleProcess(role, arguments, stop, signals, checkpoint_request), body, health)
        except StoppedError:  # before it was connected
            return ExitCode(128 + signals[0]) if signals else ExitCode.OK
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED
        except Exception as error:
            if arguments.debug:
                raise
            print_error(error)
            return exit_code_of(error)


def _take_part(process: RoleProcess, body: Callable[[RoleProcess], None], health: HealthFile) -> ExitCode:
    setup_logging(process.config.log_level, process.name)
    if process.arguments.supervised:
        # The launcher keeps the console in a file, for warnings; everything is in the run's log.
        for handler in logging.getLogger().handlers:
            handler.setLevel(max(handler.level, logging.WARNING))
    try:
        process.join_run()
        with suppress(StoppedError):
            body(process)
        if process.failure is not None:
            raise process.failure
    except StoppedError:  # before it took part
        pass
    except Exception as error:
        # The traceback goes to the run's folder; the console shows one line.
        logger.error("%s ends: %s", process.name, error_line(error), exc_info=not is_expected(error))
        if not is_expected(error):
            error.add_note(f"the traceback is in {process.run_dir / 'logs' / process.name}.log")
        raise
    finally:
        process.close()
    ending = process.ending()
    if process.arguments.stay and ending.exit_code is ExitCode.OK:
        stay(process.client, ending.reason, process.signals, health)
    return ending.exit_code
