"""The process of an app's environment program, with small programs of a shell."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from surreal.rlx.client.options import TOKEN_VARIABLE
from surreal.run.launch.environment import main
from surreal.run.launch.starting import Process, Spawner

MODULE = "surreal.run.launch.environment"


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Process]:
    def begin(command: str, *more: str) -> Process:
        arguments = ["--command", command, "--folder", str(tmp_path), "--config", "app.yaml", "--rlx-server", "h:1"]
        return Spawner().start(MODULE, [*arguments, *more], console=tmp_path / "console", environment={})

    return begin


def wait_for(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_program_gets_its_options_its_token_and_this_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    (tmp_path / "program.py").write_text(
        "import os, sys\n"
        f"print(*sys.argv[1:], os.environ['{TOKEN_VARIABLE}'], os.getcwd(), sys.prefix, flush=True)\n"
        "sys.exit(3)\n"
    )
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the handlers of pytest stay
    options = ["--config", "a b.yaml", "--rlx-server", "h:1", "--exploit", "--token-file", str(tmp_path / "token")]
    assert main(["--command", "python program.py x", "--folder", str(tmp_path), *options]) == 3
    shown = capfd.readouterr().out
    options = ["--config", "a b.yaml", "--rlx-server", "h:1", "--exploit", "True", "--show-ui", "False"]
    assert shown.startswith(" ".join(["x", *options, "s3cret", str(tmp_path)]))


def test_a_folder_that_is_not_there_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    options = ["--command", "true", "--folder", "/nowhere/at/all", "--config", "c", "--rlx-server", "h:1"]
    assert main(options) == 1
    assert capfd.readouterr().err.startswith("error: /nowhere/at/all: no such file or directory")


def test_whatever_the_shell_has_started_ends_with_it(start: Callable[..., Process], tmp_path: Path) -> None:
    process = start("sleep 60 & echo $! > pid; wait; true")
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    sleeper = psutil.Process(int((tmp_path / "pid").read_text()))
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
    wait_for(lambda: not sleeper.is_running() or sleeper.status() == psutil.STATUS_ZOMBIE)


def test_a_program_that_was_killed_shows_as_killed(start: Callable[..., Process]) -> None:
    assert start("kill -9 $$;").wait() == -signal.SIGKILL


def test_usr1_is_the_programs_own(start: Callable[..., Process], tmp_path: Path) -> None:
    process = start("touch begun; sleep 0.2; exit 0;")
    wait_for((tmp_path / "begun").exists)
    os.kill(process.pid, signal.SIGUSR1)
    assert process.wait() == 0
