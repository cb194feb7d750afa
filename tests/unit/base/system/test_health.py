"""A process says in a file how it is, and a probe believes it only while that can be true."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from surreal.base.system import health, probe
from surreal.base.system.health import (
    MAIN_LOOP,
    HealthFile,
    Pulse,
    Startup,
    Vitals,
    health_path,
    innermost_call,
    look_at_loops,
    pulses,
    stack_of,
)
from surreal.base.system.logs import Waits
from surreal.base.system.probe import ENDING, LIVENESS, OVER, READINESS, STARTING, STARTUP, WORKING
from surreal.base.system.threads import Supervisor

ROOT = Path(__file__).parents[4]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "health"


def passes(path: Path, role: str = "agent") -> set[str]:
    """The probes that a process passes."""
    return {name for name in probe.PROBES if probe.probe(str(path), role, name)[0]}


@pytest.mark.parametrize(
    ("vitals", "expected"),
    [
        (Vitals(STARTING), {LIVENESS}),
        (Vitals(STARTING, ("Redis does not answer",)), {STARTUP, LIVENESS}),
        (Vitals(STARTING, hangs_in="the main loop hangs in compile"), {LIVENESS}),
        (Vitals(WORKING), {STARTUP, LIVENESS, READINESS}),
        (Vitals(WORKING, ("waiting for credit",)), {STARTUP, LIVENESS}),
        (Vitals(WORKING, hangs_in="the main loop hangs in step (env.py line 3)"), {STARTUP}),
        (Vitals(ENDING), {STARTUP, LIVENESS}),
        (Vitals(ENDING, hangs_in="the main loop hangs in save"), {STARTUP, LIVENESS}),
        (Vitals(OVER), {STARTUP, LIVENESS, READINESS}),
    ],
)
def test_what_a_process_does_decides_which_probes_it_passes(path: Path, vitals: Vitals, expected: set[str]) -> None:
    HealthFile("agent", lambda: vitals, path).write()
    assert passes(path) == expected
    is_well, sentence = probe.probe(str(path), "", LIVENESS)
    assert is_well is (LIVENESS in expected)
    if vitals.phase == WORKING:
        assert sentence == (vitals.hangs_in or next(iter(vitals.waits_for), WORKING))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"at_s": time.monotonic() - 60.0}, "no heartbeat for"),
        ({"birth": "1"}, "has ended"),  # of a process before this one, with its number
        ({"role": "learner"}, "belongs to a process with the role learner"),
        ({"pid": "x"}, "cannot be read: ValueError"),
        ({"waits_for": 3}, "cannot be read: TypeError"),
    ],
)
def test_a_file_that_says_nothing_of_this_process_now_passes_no_probe(
    path: Path, changes: dict[str, Any], sentence: str
) -> None:
    HealthFile("agent", lambda: Vitals(WORKING), path).write()
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    assert passes(path) == set()
    assert sentence in probe.probe(str(path), "agent", LIVENESS)[1]


@pytest.mark.parametrize("content", [None, "", "[]", "{}", '{"role": "agent"', "\x00\xff"])
def test_no_file_or_no_such_file_passes_no_probe(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "health"
    if content is not None:
        path.write_text(content)
    assert passes(path) == set()


def test_a_process_without_the_variable_writes_nothing(tmp_path: Path) -> None:
    assert health_path({}) is None
    assert health_path({probe.HEALTH_VARIABLE: "/tmp/health"}) == Path("/tmp/health")
    with HealthFile("agent", lambda: Vitals(WORKING), None) as file:
        file.write()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    file = HealthFile("agent", lambda: Vitals(WORKING), tmp_path / "file" / "health")
    caplog.set_level(logging.WARNING)
    file.write()
    file.write()
    assert len(caplog.records) == 1


def test_loops_and_waits_say_how_a_process_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now, stop = [0.0], threading.Event()
    waits = Waits(clock=lambda: now[0])
    monkeypatch.setattr(health, "WAITS", waits)
    thread, main = Pulse("telemetry"), Pulse(MAIN_LOOP)
    monkeypatch.setattr(health, "pulses", lambda: [thread, main])
    thread.has_turned = True
    assert look_at_loops(stop) == Vitals(STARTING)
    main.has_turned = True
    assert look_at_loops(stop) == Vitals(WORKING)
    main.has_begun, main.has_turned = True, False  # the watchdog has looked
    waits.note("credit", "waiting for credit")
    assert look_at_loops(stop) == Vitals(WORKING)  # for a moment, as one often does
    now[0] = 3.0
    assert look_at_loops(stop) == Vitals(WORKING, ("waiting for credit",))
    waits.end("credit")
    waits.note("session", "waiting for a client to begin a session", is_idle=True)
    now[0] = 6.0
    assert waits.texts() == ["waiting for a client to begin a session"]
    assert look_at_loops(stop) == Vitals(WORKING)
    thread.hangs_in = "telemetry hangs in send"
    assert look_at_loops(stop) == Vitals(WORKING, (), "telemetry hangs in send")
    stop.set()
    assert look_at_loops(stop).phase == ENDING


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernel does not say when a process began")
def test_a_process_that_is_stopped_or_killed_is_found_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import sys, time; from pathlib import Path; from surreal.base.system.health import HealthFile, Vitals\n"
        "with HealthFile('agent', lambda: Vitals('working'), Path(sys.argv[1]), interval_s=0.05):\n"
        "    time.sleep(120)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    child = subprocess.Popen([sys.executable, "-c", program, str(path)], env=environment)
    try:
        wait_until(lambda: passes(path) == {STARTUP, LIVENESS, READINESS})
        monkeypatch.setattr(probe, "STALE_S", 0.5)
        child.send_signal(signal.SIGSTOP)
        wait_until(lambda: passes(path) == set())
        child.send_signal(signal.SIGCONT)
        wait_until(lambda: LIVENESS in passes(path))
    finally:
        child.kill()
        child.wait()
    assert passes(path) == set()


def wait_until(condition: Any, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_command_tells_wrong_arguments_from_a_process_that_is_not_well(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(probe.HEALTH_VARIABLE, raising=False)
    for arguments in (["agent"], ["agent", "--probe", "health"], ["agent", "--prob"], ["agent", "eval"], ["--file"]):
        assert probe.main(arguments) == 2, arguments
        assert capsys.readouterr().err.count("error: ") == 1
    monkeypatch.setenv(probe.HEALTH_VARIABLE, str(path))
    assert probe.main(["agent", "--probe", "liveness"]) == 1
    HealthFile("agent", lambda: Vitals(WORKING, ("waiting for Redis",)), path).write()
    capsys.readouterr()
    assert probe.main(["agent", "--probe=liveness"]) == 0
    assert probe.main(["--file", str(path)]) == 1
    assert capsys.readouterr().out == "waiting for Redis\n" * 2
    assert probe.main(["--help"]) == 0
    assert probe.HEALTH_VARIABLE in capsys.readouterr().out


def test_the_command_imports_next_to_nothing(path: Path) -> None:
    HealthFile("agent", lambda: Vitals(WORKING), path).write()
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); sys.argv[1:] = ['health', 'agent', '--file', sys.argv[2]]\n"
        "import runpy\n"
        "before = set(sys.modules)\n"
        "try:\n"
        "    runpy.run_module('surreal', run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0, end\n"
        "print(sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", program, str(ROOT), str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    imported = set(eval(done.stdout.splitlines()[-1]))
    assert {"surreal", "json"} <= imported
    assert not imported & {
        "typer",
        "click",
        "rich",
        "numpy",
        "torch",
        "redis",
        "yaml",
        "argparse",
        "logging",
        "asyncio",
    }


def test_the_call_that_a_thread_is_in_is_named_with_file_and_line() -> None:
    release, found = threading.Event(), list[int]()

    def slow_step() -> None:
        found.append(threading.get_ident())
        release.wait(30.0)

    thread = threading.Thread(target=slow_step)
    thread.start()
    deadline = time.monotonic() + 20.0
    while not found or "wait" not in {frame.name for frame in stack_of(found[0])}:
        assert time.monotonic() < deadline
    call = innermost_call(stack_of(found[0]))
    release.set()
    thread.join()
    # Not `wait (threading.py line ...)`: that is where every hang ends.
    assert call.startswith("slow_step (test_health.py line ")
    assert stack_of(found[0]) == []


def test_a_supervised_thread_has_a_pulse_while_it_runs() -> None:
    supervisor, has_run = Supervisor("here"), threading.Event()

    def step() -> None:
        has_run.set()
        supervisor.stop_event.wait(1.0)

    supervisor.spawn("loop", step)
    assert has_run.wait(20.0)
    (found,) = [pulse for pulse in pulses() if pulse.name == "thread here/loop"]
    assert found.has_turned
    supervisor.stop()
    assert supervisor.join(20.0)
    assert found not in pulses()


def test_a_pulse_that_was_closed_is_not_watched() -> None:
    pulse = Pulse("main loop")
    assert pulse in pulses()
    pulse.close()
    assert pulse not in pulses()


def test_a_start_is_split_into_leases_restoring_and_the_first_step() -> None:
    now_s = lease_s = 0.0
    startup = Startup(clock=lambda: now_s)
    began_s = startup._began_s  # as long ago as this process began
    startup.watch_lease(lambda: lease_s)
    startup.mark_first_step()
    assert startup.metrics() == {}  # nothing is restored yet
    now_s, lease_s = 5.0, 2.0
    startup.mark_restored()
    now_s, lease_s = 9.0, 5.0
    startup.mark_first_step()
    expected = {"start_lease_s": 5.0, "start_restore_s": 3.0 - began_s, "start_first_step_s": 1.0}
    assert startup.metrics() == pytest.approx(expected)
    now_s = 100.0
    startup.mark_restored()
    startup.mark_first_step()
    assert startup.metrics() == {}  # they were told
