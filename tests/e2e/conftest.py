"""Real processes, as a user starts them, in a folder of their own.

Most of them are forked off a warm Python (tests/warm_python.py), which spares each the import of torch. What must be
true of a Python from its first instruction on is tried with `Workplace.spawn`: a whole run, every script, terminals.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from surreal.base.errors import SurrealError
from surreal.run.process.finding import find_run
from surreal.run.view.reader import run_status
from tests.warm_python import WarmProcess, WarmPython, environment_of_a_user, spawn

#: Environment variable by which everything that a test started, directly or not, is known.
_MARK = "SURREAL_TEST_PLACE"

T = TypeVar("T")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give these tests time: each starts many processes, and a busy machine takes many times as long as a quiet one."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(600))


def wait_for(condition: Callable[[], T | None], what: str, timeout_s: float = 200.0) -> T:
    """Wait until `condition` gives something true."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s:.0f} s"
        time.sleep(0.1)  # each look at a run's status costs what its processes could compute in
    return found


def stack_of(process: psutil.Process) -> str:
    """A process's command, state, and Python stack, as far as it can be had."""
    dump = [str(Path(sys.executable).with_name("py-spy")), "dump", "--nonblocking", "--pid", str(process.pid)]
    try:
        done = subprocess.run(dump, capture_output=True, text=True, timeout=60)
        return f"{process.pid} {process.cmdline()} {process.status()}\n{done.stdout}{done.stderr}"
    except (OSError, subprocess.SubprocessError, psutil.Error) as error:
        return f"{process.pid}: {error}"


class Command:
    """A started process whose output goes to a file.

    Args:
        arguments: of `python`.
        folder: to work in, and for the file.
        environment: all its variables.
        warm_python: forks it; None starts a Python of its own.
        typed: what a person types into it.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        environment: dict[str, str],
        warm_python: WarmPython | None,
        *,
        typed: str = "",
    ) -> None:
        self.process: subprocess.Popen[bytes] | WarmProcess
        with (
            tempfile.NamedTemporaryFile(prefix="out-", dir=folder, delete=False) as file,
            tempfile.TemporaryFile() as keyboard,
        ):
            keyboard.write(typed.encode())
            keyboard.seek(0)
            self._output = Path(file.name)
            streams = (keyboard.fileno(), file.fileno(), file.fileno())
            if warm_python is None:
                self.process = spawn(arguments, folder=folder, environment=environment, streams=streams)
            else:
                self.process = warm_python.start(arguments, folder=folder, environment=environment, streams=streams)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def wait(self, timeout_s: float = 200.0) -> int:
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            where = stack_of(psutil.Process(self.pid))
            pytest.fail(f"{self.process.args} did not end within {timeout_s:.0f} s:\n{self.output}\n{where}")

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)


class Workplace:
    """A folder in which commands run, and what they leave there."""

    #: Arguments of a run that goes on until it is told to end.
    endless = ("--set", "run.max_env_steps=null", "--set", "run.stop_at_return=null")
    #: Arguments of a run whose agents are not what the test is about: each is a process more to start.
    one_agent = ("--set", "agent.count=1")
    #: Arguments of an evaluation that costs little.
    fast_eval = ("--set", "eval.interval_s=0.5", "--set", "eval.episodes=4", "--set", "eval.confirm_episodes=0")
    wait_for = staticmethod(wait_for)

    def __init__(self, folder: Path, temporary: Path, warm_python: WarmPython) -> None:
        self.folder = folder
        self._warm_python = warm_python
        self.temporary = temporary
        self.environment = {**environment_of_a_user(), "TMPDIR": str(temporary), _MARK: str(temporary)}
        self.commands: list[Command] = []

    def start(self, *arguments: str, **environment: str) -> Command:
        """`surreal ARGUMENTS` in the background."""
        return self.start_python("-m", "surreal", *arguments, **environment)

    def start_python(self, *arguments: str, at: Path | None = None, typed: str = "", **environment: str) -> Command:
        """`python ARGUMENTS`, `at` a folder below, forked off a warm one where that is possible; see `Command`."""
        return self._begin(arguments, environment, self._warm_python, at, typed=typed)

    def spawn(self, *arguments: str, at: Path | None = None, **environment: str) -> Command:
        """`python ARGUMENTS` in the background, `at` a folder below, as a Python of its own."""
        return self._begin(arguments, environment, None, at)

    def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        """`surreal ARGUMENTS` until it ends: exit code and output."""
        command = self.start(*arguments, **environment)
        return command.wait(), command.output

    def run_dir(self) -> Path:
        """The folder of the only run."""

        def only() -> Path | None:
            found = list((self.folder / "runs").glob("*/app.yaml"))
            assert len(found) < 2
            return found[0].parent if found else None

        return wait_for(only, "a run's folder")

    def status(self, run: str | None = None, address: str | None = None) -> dict[str, Any]:
        """What `surreal status --json` prints, of the only run or of one at an address, without a process for it."""
        with find_run(run, address=address, run_dir=None if run else self.run_dir()) as client:
            return run_status(client).to_json()

    def knows(self, run: str | None = None, address: str | None = None) -> bool:
        """Whether the run is there, with a process in it."""
        try:
            return len(self.status(run, address)["processes"]) > 0
        except SurrealError:
            return False

    def processes(self) -> list[psutil.Process]:
        """Everything that still runs and was started from here, by whomever."""
        found = []
        for process in psutil.process_iter():
            try:
                # What was forked off the warm Python, or by that, shows its variables, but is at work in the folder.
                is_ours = process.environ().get(_MARK) == str(self.temporary) or Path(process.cwd()).is_relative_to(
                    self.folder
                )
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def wait_until_nothing_runs(self) -> None:
        """Wait until all that was started from here has ended; the failure shows where the others are."""
        try:
            wait_for(lambda: self.processes() == [], "the end of all processes")
        except AssertionError as error:
            pytest.fail("\n\n".join([str(error), *map(stack_of, self.processes())]))

    def assert_nothing_is_left(self) -> None:
        """No process, and no file outside the run's folder."""
        assert [process.cmdline() for process in self.processes()] == []
        assert list(self.temporary.iterdir()) == []
        names = {path.name for path in self.folder.iterdir()}
        assert {name for name in names if not name.startswith("out-")} == {"runs"}

    def _begin(
        self,
        arguments: Sequence[str],
        environment: dict[str, str],
        warm_python: WarmPython | None,
        at: Path | None = None,
        **options: Any,
    ) -> Command:
        command = Command(arguments, at or self.folder, {**self.environment, **environment}, warm_python, **options)
        self.commands.append(command)
        return command

    def role_pid(self, name: str) -> int:
        """Process id of a role, from its heartbeat."""
        return next(int(entry["pid"]) for entry in self.status()["processes"] if entry["name"] == name)


@pytest.fixture
def workplace(tmp_path: Path, warm_python: WarmPython) -> Iterator[Workplace]:
    # Short: a socket's path has a limit, and the embedded Redis puts its socket into the folder for temporary files.
    temporary = Path(tempfile.mkdtemp(prefix="srl-"))
    place = Workplace(tmp_path, temporary, warm_python)
    yield place
    for process in place.processes():
        process.kill()
    for command in place.commands:
        command.process.wait()
    shutil.rmtree(temporary, ignore_errors=True)
