"""Processes that are forked off a helper are like those that a launcher starts one by one, with small programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from surreal.run.launch.starting import ForkedProcess, ForkServer, Process

TELL = """
import json, os, sys, time
LOADED_BY = os.getpid()
def main(argv):
    print(json.dumps({
        "argv": argv, "sys.argv": sys.argv, "loaded_by": LOADED_BY, "pid": os.getpid(), "ppid": os.getppid(),
        "session": os.getsid(0), "variable": os.environ.get("OF_THE_RUN"),
        "helper's": "OPENBLAS_NUM_THREADS" in os.environ, "threads": len(os.listdir("/proc/self/task")),
        "stdin": os.readlink("/proc/self/fd/0"),
        "files": len(os.listdir("/proc/self/fd")),
    }), flush=True)
    print("to the console as well", file=sys.stderr)
    return int(argv[0])
"""
WAIT = """
import sys, time
def main(argv):
    from surreal.run.process.interrupts import follow_parent
    follow_parent()
    print("ready", flush=True)
    time.sleep(600)
"""
RANDOM = """
import random, sys
import numpy as np
def main(argv):
    print(random.random(), np.random.random())
    return 0
"""
LEAVE = """
import atexit, threading, time
def main(argv):
    atexit.register(print, "exit handler")
    def work():
        time.sleep(0.1)
        print("thread")
    threading.Thread(target=work).start()
    return 3
"""
LAUNCHER = """
import sys, time
from pathlib import Path
from surreal.run.launch.starting import ForkServer
with ForkServer(["program_wait"]) as server:
    folder = Path(sys.argv[1])
    started = server.start("program_wait", [], console=folder / "orphan.out", environment={})
    print(server.pid, started.pid, flush=True)
    time.sleep(600)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")


def wait_for(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def wait_until_ready(console: Path) -> None:
    wait_for(lambda: console.exists() and "ready" in console.read_text())


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, code in (("tell", TELL), ("wait", WAIT), ("random", RANDOM), ("leave", LEAVE)):
        (tmp_path / f"program_{name}.py").write_text(code)
    (tmp_path / "program_thread.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return tmp_path


@pytest.fixture
def server(programs: Path) -> Iterator[ForkServer]:
    with ForkServer(["program_tell", "program_wait", "program_random"]) as server:
        yield server


class Started:
    def __init__(self, server: ForkServer, folder: Path, name: str, *arguments: str, **environment: str) -> None:
        self.console = folder / f"{name}.out"
        self.process: Process = server.start(
            f"program_{name}", list(arguments), console=self.console, environment=environment
        )

    def told(self) -> dict[str, Any]:
        self.process.wait()
        found: dict[str, Any] = json.loads(self.console.read_text().splitlines()[0])
        return found


def test_forked_process_is_what_was_asked_for(server: ForkServer, programs: Path) -> None:
    (programs / "tell.out").write_text("")
    started = Started(server, programs, "tell", "0", "--more", OF_THE_RUN="yes")
    told = started.told()
    assert isinstance(started.process, ForkedProcess)
    assert (told["argv"], told["sys.argv"]) == (["0", "--more"], ["program_tell", "0", "--more"])
    assert told["loaded_by"] == server.pid  # imported once, for all
    assert told["pid"] == told["session"] == started.process.pid
    assert told["ppid"] == os.getpid()
    assert (told["variable"], told["helper's"]) == ("yes", False)
    assert (told["threads"], told["stdin"]) == (1, "/dev/null")
    assert told["files"] == 4  # the console, twice, nothing to read, and the folder that is looked at
    assert "to the console as well" in started.console.read_text()


def test_console_is_appended_to(server: ForkServer, programs: Path) -> None:
    for code in ("0", "1"):
        Started(server, programs, "tell", code).process.wait()
    assert (programs / "tell.out").read_text().count('"argv"') == 2


@pytest.mark.parametrize("code", [0, 1, 2, 130])
def test_exit_code_is_the_one_of_main(server: ForkServer, programs: Path, code: int) -> None:
    process = Started(server, programs, "tell", str(code)).process
    assert process.wait() == code
    assert process.poll() == process.returncode == code


def test_exception_is_a_traceback_on_the_console_and_exit_code_1(server: ForkServer, programs: Path) -> None:
    started = Started(server, programs, "tell", "nonsense")
    assert started.process.wait() == 1
    assert started.console.read_text().splitlines()[-1].startswith("ValueError: ")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_signal_reaches_a_process_and_its_end_says_which_it_was(
    server: ForkServer, programs: Path, number: signal.Signals
) -> None:
    started = Started(server, programs, "wait")
    wait_until_ready(started.console)
    assert started.process.poll() is None
    started.process.send_signal(number)
    assert started.process.wait() == -number
    started.process.send_signal(number)  # it has ended: nobody gets it


def test_threads_and_exit_handlers_of_a_process_that_ends_are_waited_for(server: ForkServer, programs: Path) -> None:
    started = Started(server, programs, "leave")
    assert started.process.wait() == 3
    assert started.console.read_text().splitlines() == ["thread", "exit handler"]


def test_processes_do_not_share_random_numbers(server: ForkServer, programs: Path) -> None:
    for _ in range(2):
        Started(server, programs, "random").process.wait()
    first, second = [line.split() for line in (programs / "random.out").read_text().splitlines()]
    assert first[0] != second[0]
    assert first[1] != second[1]


def test_process_survives_the_helper_and_the_next_one_starts_without_it(server: ForkServer, programs: Path) -> None:
    started = Started(server, programs, "wait")
    wait_until_ready(started.console)
    helper = server.pid
    assert helper is not None
    os.kill(helper, signal.SIGKILL)
    second = Started(server, programs, "tell", "0")
    assert not isinstance(second.process, ForkedProcess)
    assert second.process.wait() == 0
    assert server.pid is None
    assert started.process.poll() is None
    started.process.send_signal(signal.SIGKILL)
    assert started.process.wait() == -signal.SIGKILL


def test_modules_that_start_threads_are_not_forked(programs: Path) -> None:
    with ForkServer(["program_tell", "program_thread"]) as server:
        process = Started(server, programs, "tell", "0").process
        assert not isinstance(process, ForkedProcess)
        process.wait()


def test_module_that_cannot_be_imported_is_the_business_of_whoever_needs_it(programs: Path) -> None:
    with ForkServer(["no_such_module"]) as server:
        process = Started(server, programs, "tell", "0").process
        assert not isinstance(process, ForkedProcess)
        process.wait()


def test_helper_ends_with_its_owner_s_block(programs: Path) -> None:
    with ForkServer(["program_tell"]) as server:
        helper = server.pid
        assert helper is not None
        assert psutil.pid_exists(helper)
    assert server.pid is None
    assert not psutil.pid_exists(helper)


def test_everything_ends_with_a_launcher_that_is_killed(programs: Path) -> None:
    command = [sys.executable, "-c", LAUNCHER, str(programs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher, ExitStack() as stack:
        assert launcher.stdout is not None
        stack.callback(launcher.kill)
        mine = [psutil.Process(int(pid)) for pid in launcher.stdout.readline().split()]
        wait_until_ready(programs / "orphan.out")
    wait_for(lambda: not any(_is_alive(process) for process in mine))


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
