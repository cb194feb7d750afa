"""What a warm Python forks is what a Python of its own would be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.warm_python import WarmProcess, WarmPython, environment_of_a_user, spawn

TELL = """
import json, os, signal, sys, tempfile, threading
import __main__
print(json.dumps({
    "argv": sys.argv, "path": sys.path[0], "name": __name__, "main": vars(__main__) is globals(),
    "folder": os.getcwd(), "variables": dict(os.environ), "temporary": tempfile.gettempdir(),
    "session": os.getsid(0) == os.getpid(), "threads": threading.active_count(),
    "files": len(os.listdir("/proc/self/fd")),
    "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "terminate": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
    "read": sys.stdin.read(), "is a terminal": [sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty()],
}))
"""
LAUNCH = """
import json, sys
from pathlib import Path
from surreal.run.launch.starting import ForkedProcess, ForkServer
with ForkServer(["told"]) as starter:
    started = starter.start("told", ["a"], console=Path("console"), environment={"OF_THE_RUN": "yes"})
    print(json.dumps([isinstance(started, ForkedProcess), started.wait(), starter.pid]))
"""
TOLD = """
import json, os, sys
def main(arguments):
    print(json.dumps([arguments, os.environ["OF_THE_RUN"], os.getppid(), "torch" in sys.modules]))
    return 7
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")


class Place:
    """Starts the same program in either way."""

    def __init__(self, folder: Path, python: WarmPython) -> None:
        self.folder, self._python = folder, python
        self.environment = {**environment_of_a_user(), "TMPDIR": str(folder), "OF_THIS_TEST": "yes"}

    def start(self, *arguments: str, is_warm: bool = True) -> tuple[Any, Path]:
        """Returns the process and the file of its output."""
        with open(os.devnull) as nothing, (self.folder / f"out-{is_warm}").open("wb") as file:
            streams = (nothing.fileno(), file.fileno(), file.fileno())
            options: Any = {"folder": self.folder, "environment": self.environment, "streams": streams}
            if not is_warm:
                return spawn(arguments, **options), Path(file.name)
            return self._python.start(arguments, **options), Path(file.name)

    def run(self, *arguments: str, is_warm: bool = True) -> tuple[int, str]:
        process, file = self.start(*arguments, is_warm=is_warm)
        return process.wait(60), file.read_text()


@pytest.fixture
def place(tmp_path: Path, warm_python: WarmPython) -> Iterator[Place]:
    (tmp_path / "tell.py").write_text(TELL)
    (tmp_path / "told.py").write_text(TOLD)
    yield Place(tmp_path, warm_python)


@pytest.mark.parametrize("how", [["-c", TELL], ["-m", "tell"], ["tell.py"]], ids=["program", "module", "file"])
def test_process_finds_what_a_python_of_its_own_finds(place: Place, how: list[str]) -> None:
    (_, warm), (_, cold) = (place.run(*how, "a", "--b", is_warm=is_warm) for is_warm in (True, False))
    found = json.loads(cold)
    assert json.loads(warm) == found | {"files": found["files"] + 1}  # it can reach its template


@pytest.mark.parametrize(
    "program",
    [
        "pass",
        "print('said')",
        "import sys; sys.exit()",
        "import sys; sys.exit(3)",
        "import sys; sys.exit('words')",
        "import os; os._exit(5)",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import atexit; atexit.register(print, 'last'); print('first')",
        "import threading, time; threading.Timer(0.1, print, ['thread']).start(); print('main')",
    ],
)
def test_end_is_that_of_a_python_of_its_own(place: Place, program: str) -> None:
    assert place.run("-c", program) == place.run("-c", program, is_warm=False)


@pytest.mark.parametrize(("program", "code"), [("1 / 0", 1), ("raise KeyboardInterrupt", -signal.SIGINT)])
def test_exception_is_a_traceback_and_the_exit_code_of_python(place: Place, program: str, code: int) -> None:
    for is_warm in (True, False):
        found, output = place.run("-c", program, is_warm=is_warm)
        assert (found, output.splitlines()[0]) == (code, "Traceback (most recent call last):")


def test_signal_ends_it_and_later_ones_reach_nobody(place: Place) -> None:
    process, _ = place.start("-c", "import time; time.sleep(600)")
    assert isinstance(process, WarmProcess)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)
    process.terminate()
    assert process.wait(60) == process.poll() == process.returncode == -signal.SIGTERM
    process.kill()
    assert not psutil.pid_exists(process.pid)


def test_random_numbers_are_its_own(place: Place) -> None:
    program = "import random, numpy; print(random.random()); print(numpy.random.random())"
    first, second = (place.run("-c", program)[1].split() for _ in range(2))
    assert set(first).isdisjoint(second)


def test_fork_server_of_a_launcher_has_been_forked_as_well(place: Place) -> None:
    process, file = place.start("-c", LAUNCH)
    assert process.wait(60) == 0, file.read_text()
    is_forked, code, helper = json.loads(file.read_text())
    assert (is_forked, code) == (True, 7)
    assert json.loads((place.folder / "console").read_text()) == [["a"], "yes", process.pid, True]
    assert not psutil.pid_exists(helper)


@pytest.mark.parametrize("end", ["pass", "os._exit(0)"])
def test_fork_server_that_nobody_asked_for_is_gone_with_its_launcher(place: Place, end: str) -> None:
    program = f"import os, psutil; print(psutil.Process().children()[0].pid, flush=True); {end}"
    process, file = place.start("-c", program)
    assert process.wait(60) == 0, file.read_text()
    with suppress(psutil.NoSuchProcess):
        psutil.Process(int(file.read_text())).wait(60)


def test_everything_ends_with_the_owner(place: Place) -> None:
    with WarmPython([]) as python:
        nothing = os.open(os.devnull, os.O_RDWR)
        process = python.start(
            ["-c", "import time; time.sleep(600)"],
            folder=place.folder, environment=place.environment, streams=(nothing, nothing, nothing),
        )  # fmt: skip
        os.close(nothing)
        running = psutil.Process(process.pid)
    psutil.wait_procs([running], timeout=60)
    assert not running.is_running()
