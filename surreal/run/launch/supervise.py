"""The launcher's children: made, started, watched, restarted after a signal killed them, and stopped in order.

What a child writes to its console goes into `logs/NAME.out` of the run's folder. Called from the main thread only.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from surreal.base.errors import OS_REMEDIES
from surreal.base.system.files import is_full, rotate
from surreal.base.system.health import RecentDeaths
from surreal.config import Config
from surreal.distributed.connection.client import RedisClient
from surreal.run.launch.starting import Process, Spawner
from surreal.run.process.ending import ExitCode
from surreal.run.process.interrupts import CHECKPOINT_SIGNAL, signal_name
from surreal.run.process.roles import AGENT, EVAL, LEARNER, PARAMETER_SERVER, RLX_SERVER, ROLES, NormalEnd, Role
from surreal.run.process.run_folder import tail

logger = logging.getLogger(__name__)


class OrphanReaper:
    """Reaps adopted children: the ranks or environment workers that a killed process leaves behind would stay zombies.

    Its owner polls all children that it started between two calls.
    """

    def __init__(self) -> None:
        self._seen = 0

    def reap(self) -> None:
        """Reap a child that had already ended at the last call and was not polled since."""
        with suppress(ChildProcessError):  # there are no children
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            pid = 0 if found is None else found.si_pid
            if pid and pid == self._seen:
                os.waitpid(pid, os.WNOHANG)
            self._seen = pid


_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 0.25, 10.0
_TAIL_BYTES = 16_384
#: Maximum size of a console's file; together with its older part, it has twice that.
MAX_CONSOLE_BYTES = 64 << 20
_NO_OUTPUT = "it left no output"
#: Longest drain of a process that is known to hang, s.
_HANGING_DRAIN_S = 3.0


@dataclass
class Child:
    """One role process with its history."""

    role: Role
    number: int  #: among those of its role
    arguments: Sequence[str]
    process: Process | None = None
    restarts: int = 0
    deaths: RecentDeaths = field(default_factory=RecentDeaths)
    restart_at_s: float | None = None  #: monotonic time of a due restart
    is_finished: bool = False  #: ended by itself with exit code 0

    @property
    def name(self) -> str:
        return self.role.console_name(self.number)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None


@dataclass(eq=False)
class Supervision:
    """Keeps a run's children alive."""

    children: Sequence[Child]  #: in the order in which they are started
    starter: Spawner
    log_dir: Path
    environment: Mapping[str, str]  #: variables added to this process's own
    restart_limit: int  #: tolerated deaths of each child within a minute, >= 0; one more ends the run

    def __post_init__(self) -> None:
        self._orphans = OrphanReaper()
        self.pids: set[int] = set()  #: of all that were ever started

    def start(self) -> None:
        self.log_dir.mkdir(parents=True, exist_ok=True)
        for child in self.children:
            self._start(child)

    def poll(self) -> str | None:
        """Check the children once and restart those that are due; return why the run cannot continue, or None."""
        for child in self.children:
            if child.restart_at_s is not None and time.monotonic() >= child.restart_at_s:
                child.restart_at_s = None
                self._start(child, is_restart=True)
            elif child.process is not None and child.process.poll() is not None:
                code = child.process.returncode
                child.process = None
                if (reason := self._ended(child, code)) is not None:
                    return reason
            with suppress(OSError):  # a full disk
                rotate(self._console(child), MAX_CONSOLE_BYTES, is_open=True)
        self._orphans.reap()
        return None

    def ask_for_checkpoint(self) -> None:
        for child in self.children:
            if child.role.leads and child.process is not None and child.process.poll() is None:
                child.process.send_signal(CHECKPOINT_SIGNAL)

    @property
    def restarts(self) -> int:
        return sum(child.restarts for child in self.children)

    def are_finished(self, meaning: NormalEnd) -> bool:
        """Whether there are children whose normal end has this meaning, and all of them have ended normally."""
        found = [child for child in self.children if child.role.normal_end is meaning]
        return bool(found) and all(child.is_finished for child in found)

    def drain(
        self,
        *,
        is_hurried: Callable[[], bool],
        hanging: Container[int] = (),
        on_wait: Callable[[Sequence[Child]], object] = lambda _: None,
    ) -> str | None:
        """Stop all children role by role, in the order of the table; returns the problem that is the run's, or None."""
        problems: dict[str, str] = {}
        for order in sorted({child.role.drain_order for child in self.children}):
            mine = [child for child in self.children if child.role.drain_order == order]
            problems |= self.stop(mine, is_hurried=is_hurried, hanging=hanging, on_wait=on_wait)
        deciding = (child.name for child in self.children if child.role.normal_end is NormalEnd.ENDS_RUN)
        return next((problems[name] for name in deciding if name in problems), None)

    def stop(
        self,
        mine: Sequence[Child],
        *,
        is_hurried: Callable[[], bool],
        hanging: Container[int] = (),
        on_wait: Callable[[Sequence[Child]], object] = lambda _: None,
    ) -> dict[str, str]:
        """Ask children to drain, wait up to their roles' timeouts, and kill the rest; returns the problems by name."""
        for child in mine:
            child.restart_at_s = None
            if child.process is not None and child.process.poll() is None:
                child.process.send_signal(signal.SIGTERM)
        started_s = time.monotonic()
        deadlines = {child.name: started_s + self._drain_limit_s(child, hanging) for child in mine}
        while waiting := [child for child in mine if child.is_running and time.monotonic() < deadlines[child.name]]:
            if is_hurried():
                now = time.monotonic()
                for child in waiting:
                    deadlines[child.name] = min(deadlines[child.name], now + child.role.hurried_timeout_s)
            on_wait(waiting)
            time.sleep(0.02)
        late = [child for child in mine if child.is_running]
        self._kill(mine)
        problems = {child.name: f"{child.name} did not end in time and was killed" for child in late}
        for child in mine:
            code = 0 if child.process is None else child.process.returncode
            if code > 0:
                problems[child.name] = f"{child.name} ended in error: {self.last_error(child)}"
            elif code < 0 and child not in late:
                problems[child.name] = f"{child.name} was killed by {signal_name(-code)} while it ended"
            child.process = None
        for problem in problems.values():
            logger.warning("%s", problem)
        return problems

    def kill(self) -> None:
        self._kill(self.children)

    def last_error(self, child: Child) -> str:
        """Find the last error line on a child's console, which a full disk may have lost."""
        found = last_error_line(self._console(child))
        if os.strerror(errno.ENOSPC) in found or not is_full(self.log_dir):
            return found
        why = f"{self.log_dir}: {OS_REMEDIES[errno.ENOSPC]}"
        return why if found == _NO_OUTPUT else f"{found}; {why}"

    @property
    def consoles(self) -> dict[str, Path]:
        return {child.name: self._console(child) for child in self.children}

    def _drain_limit_s(self, child: Child, hanging: Container[int]) -> float:
        limit_s = child.role.drain_timeout_s
        is_hanging = child.process is not None and child.process.pid in hanging
        return min(limit_s, _HANGING_DRAIN_S) if is_hanging else limit_s

    def _console(self, child: Child) -> Path:
        return self.log_dir / f"{child.name}.out"

    def _start(self, child: Child, *, is_restart: bool = False) -> None:
        arguments = list(child.arguments)
        if is_restart and child.role.resumes and "--resume" not in arguments:
            arguments.append("--resume")
        child.process = self.starter.start(
            child.role.module, arguments, console=self._console(child), environment=self.environment
        )
        self.pids.add(child.process.pid)
        logger.info("%s %s, process %d", child.name, "started again" if is_restart else "started", child.process.pid)

    def _ended(self, child: Child, code: int) -> str | None:
        if code == 0:
            child.is_finished = True
            return f"the {child.name} is done" if child.role.normal_end is NormalEnd.ENDS_RUN else None
        if code > 0 and code not in (ExitCode.RANK_KILLED, ExitCode.NAME_LOST, ExitCode.NO_MEMORY):
            return f"{child.name} failed: {self.last_error(child)}"
        ended = f"was killed by {signal_name(-code)}" if code < 0 else f"ended: {self.last_error(child)};"
        deaths = child.deaths.add()
        if deaths > self.restart_limit:
            ended += " once" if deaths == 1 else f" {deaths} times"
            window_s, limit = child.deaths.window_s, self.restart_limit
            return f"{child.name} {ended} within {window_s:.0f} s; run.restart_limit is {limit}"
        # The first restart is immediate: a process that dies once an hour need not wait.
        delay = 0.0 if deaths == 1 else min(_FIRST_BACKOFF_S * 2 ** (deaths - 2), _MAX_BACKOFF_S)
        child.restarts += 1
        child.restart_at_s = time.monotonic() + delay * random.uniform(0.5, 1.0)
        logger.warning("%s %s; starting it again", child.name, ended.removesuffix(";"))
        return None

    def _kill(self, children: Iterable[Child]) -> None:
        mine = [child for child in children if child.process is not None]
        for child in mine:
            if child.is_running and child.process is not None:
                # With everything that it started: it has its own session.
                os.killpg(child.process.pid, signal.SIGKILL)
        for child in mine:
            if child.process is not None:
                child.process.wait()


def last_error_line(console: Path) -> str:
    """Find the last line that begins with `error:`, else the last line."""
    lines = [line.strip() for line in tail(console, _TAIL_BYTES) if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or [_NO_OUTPUT])[-1]


def make_children(
    config: Config,
    client: RedisClient,
    common: Sequence[str],
    stack: ExitStack,
    say: Callable[[str], object],
    *,
    config_path: Path,
    offline: str | None = None,
) -> list[Child]:
    """Make all children of a run, in the order of their start; nothing starts here."""
    learner = [*common, *(() if offline is None else ("--offline", offline))]
    arguments: dict[Role, Callable[[int], Sequence[str]]] = {
        LEARNER: lambda _: learner,
        PARAMETER_SERVER: lambda number: [*common, "--index", str(number)],
        AGENT: lambda number: [*common, "--index", str(number)],
        EVAL: lambda _: common,
    }
    if RLX_SERVER.count(config):
        from surreal.run.build.rlx_server import port_owner  # both bring gymnasium, for the wrappers
        from surreal.run.launch.rlx_children import rlx_arguments

        arguments |= rlx_arguments(config, common, stack, say, owner=port_owner(client), config_path=config_path)
    return [Child(role, number, arguments[role](number)) for role in ROLES for number in range(role.count(config))]
