"""The launcher's children, as small programs instead of real roles."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from surreal.base.system.health import RecentDeaths
from surreal.run.launch import supervise
from surreal.run.launch.starting import Spawner
from surreal.run.launch.supervise import Child, Supervision, last_error_line
from surreal.run.process.roles import AGENT, EVAL, LEARNER, RLX_CLIENT, ROLES, NormalEnd, Role

Starter = Callable[..., Supervision]
ChildMaker = Callable[..., Child]

WAIT = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("ready", flush=True)
time.sleep(60)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def child(tmp_path: Path) -> Callable[..., Child]:
    """Makes a child of a role whose module is a small program."""

    def make(code: str, like: Role = AGENT, **changes: Any) -> Child:
        module = f"{like.name.replace('-', '_')}_program"
        (tmp_path / f"{module}.py").write_text(code)
        return Child(replace(like, module=module, **changes), 0, [])

    return make


@pytest.fixture
def supervise_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Supervision]]:
    monkeypatch.setattr(supervise, "_FIRST_BACKOFF_S", 0.01)
    made: list[Supervision] = []

    def start(*children: Child, restart_limit: int = 5) -> Supervision:
        environment = {"PYTHONPATH": str(tmp_path)}
        supervision = Supervision(
            children, Spawner(), log_dir=tmp_path, environment=environment, restart_limit=restart_limit
        )
        made.append(supervision)
        supervision.start()
        return supervision

    yield start
    for supervision in made:
        supervision.kill()


def wait_for(condition: Callable[[], object], timeout_s: float = 20.0) -> object:
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
    return found


def wait_until_ready(tmp_path: Path, name: str = "agent-0", times: int = 1) -> None:
    wait_for(lambda: (tmp_path / f"{name}.out").read_text().count("ready") >= times)


def never() -> bool:
    return False


def test_killed_child_is_started_again(supervise_all: Starter, child: ChildMaker, tmp_path: Path) -> None:
    one = child(WAIT)
    supervision = supervise_all(one)
    wait_until_ready(tmp_path)
    assert one.process is not None
    first = one.process.pid
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: supervision.poll() is None and one.process is not None and one.process.pid != first)
    wait_until_ready(tmp_path, times=2)
    assert supervision.restarts == 1
    assert one.is_running


def test_a_console_is_bounded_while_its_process_prints(
    supervise_all: Starter, child: ChildMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "MAX_CONSOLE_BYTES", 2000)
    one = child('import sys, time\nfor n in range(100000): print(f"line {n}", flush=True); time.sleep(0.001)')
    supervision = supervise_all(one)
    older, begins = tmp_path / "agent-0.out.older", set[str]()

    def has_moved_twice() -> bool:
        assert supervision.poll() is None
        begins.update(older.read_text().splitlines()[:1] if older.exists() else [])
        return len(begins) == 2

    wait_for(has_moved_twice)
    assert one.is_running
    assert b"\0" not in older.read_bytes(), "the process has left a hole where the content was"


def test_a_child_that_is_starting_survives_the_wish_for_a_checkpoint(
    supervise_all: Starter, child: ChildMaker, tmp_path: Path
) -> None:
    listens = """
from surreal.run.process.interrupts import CheckpointRequest
request = CheckpointRequest()
print("starting", flush=True)
while not os.path.exists("asked"):
    time.sleep(0.01)
request.listen()
print(f"asked: {request.take()}", flush=True)
"""
    one = child(f"import os, time; os.chdir({str(tmp_path)!r}){listens}", LEARNER)
    supervision = supervise_all(one)
    wait_for(lambda: "starting" in (tmp_path / "learner.out").read_text())
    supervision.ask_for_checkpoint()
    (tmp_path / "asked").touch()
    wait_for(supervision.poll)
    assert "asked: True" in (tmp_path / "learner.out").read_text()


def test_child_that_is_killed_too_often_ends_the_run(supervise_all: Starter, child: ChildMaker) -> None:
    suicide = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    supervision = supervise_all(child(suicide), restart_limit=2)
    reason = wait_for(supervision.poll)
    assert reason == "agent-0 was killed by SIGKILL 3 times within 60 s; run.restart_limit is 2"


def test_deaths_long_ago_delay_nothing_and_end_nothing(
    supervise_all: Starter, child: ChildMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "_FIRST_BACKOFF_S", 3600.0)
    monkeypatch.setattr(supervise, "_MAX_BACKOFF_S", 3600.0)
    one, now_s = child("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), 0.0
    one.deaths = RecentDeaths(clock=lambda: now_s)
    supervision = supervise_all(one, restart_limit=2)
    for number in range(1, 5):  # each is the first within a minute: started again at once
        wait_for(lambda number=number: supervision.poll() is None and supervision.restarts == number)
        wait_for(lambda: supervision.poll() is None and one.process is not None)
        now_s += 61.0
    now_s -= 61.0
    wait_for(lambda: supervision.poll() is None and supervision.restarts == 5)
    assert one.restart_at_s is not None
    assert one.restart_at_s > time.monotonic() + 1000


def test_child_that_fails_ends_the_run_with_its_last_error_line(supervise_all: Starter, child: ChildMaker) -> None:
    code = "import sys; print('error: the reason', file=sys.stderr); print('bye', file=sys.stderr); sys.exit(1)"
    supervision = supervise_all(child(code))
    assert wait_for(supervision.poll) == "agent-0 failed: the reason"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise SystemExit(1)", "{}: the disk is full; make room, or choose another place"),
        ("raise SystemExit('error: half a')", "half a; {}: the disk is full; make room, or choose another place"),
        ("raise SystemExit('error: a: No space left on device')", "a: No space left on device"),
    ],
)
def test_a_full_disk_is_the_reason_that_a_console_lacks(
    supervise_all: Starter, child: ChildMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, reason: str
) -> None:
    monkeypatch.setattr(supervise, "is_full", lambda folder: folder == tmp_path)
    assert wait_for(supervise_all(child(code)).poll) == f"agent-0 failed: {reason.format(tmp_path)}"


@pytest.mark.parametrize(("code", "error"), [(4, "rank 1 was killed"), (7, "MemoryError")])
def test_learner_that_lost_a_rank_to_a_signal_or_has_no_memory_is_started_again_as_if_it_were_killed(
    supervise_all: Starter, child: ChildMaker, code: int, error: str
) -> None:
    program = f"import sys; print('error: {error}', file=sys.stderr); sys.exit({code})"
    supervision = supervise_all(child(program, LEARNER), restart_limit=2)
    assert wait_for(supervision.poll) == f"learner ended: {error}; 3 times within 60 s; run.restart_limit is 2"
    assert supervision.restarts == 2


def test_agents_that_are_done_are_not_started_again(supervise_all: Starter, child: ChildMaker) -> None:
    supervision = supervise_all(child("pass"))
    wait_for(lambda: supervision.poll() is None and supervision.are_finished(NormalEnd.ALL_END_RUN))
    assert supervision.restarts == 0
    assert not supervision.are_finished(NormalEnd.ENDS_RUN)


def test_learner_that_is_done_ends_the_run(supervise_all: Starter, child: ChildMaker) -> None:
    supervision = supervise_all(child("pass", LEARNER))
    assert wait_for(supervision.poll) == "the learner is done"


def test_stop_lets_children_drain(supervise_all: Starter, child: ChildMaker, tmp_path: Path) -> None:
    one, other = child(WAIT), child(WAIT, EVAL)
    supervision = supervise_all(one, other)
    wait_until_ready(tmp_path)
    assert supervision.stop([one], is_hurried=never) == {}
    assert not one.is_running
    assert other.is_running


def test_stop_kills_what_takes_too_long(supervise_all: Starter, child: ChildMaker, tmp_path: Path) -> None:
    one = child(STUBBORN, drain_timeout_s=0.1)
    supervision = supervise_all(one)
    wait_until_ready(tmp_path)
    assert supervision.stop([one], is_hurried=never) == {one.name: f"{one.name} did not end in time and was killed"}
    assert not one.is_running


def test_a_hurried_stop_waits_a_moment_only(supervise_all: Starter, child: ChildMaker, tmp_path: Path) -> None:
    one = child(STUBBORN, drain_timeout_s=600.0, hurried_timeout_s=0.1)
    supervision = supervise_all(one)
    wait_until_ready(tmp_path)
    assert supervision.stop([one], is_hurried=lambda: True)


def test_restart_adds_resume_where_the_role_knows_it(supervise_all: Starter, child: ChildMaker, tmp_path: Path) -> None:
    code = "import sys, os, signal; print(f'ready {sys.argv[1:]}', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    one, other = child(code, LEARNER), child(code, RLX_CLIENT)
    supervision = supervise_all(one, other, restart_limit=1)

    def lines() -> list[list[str]]:
        supervision.poll()
        return [(tmp_path / f"{name}.out").read_text().splitlines() for name in ("learner", "rlx-client-0")]

    wait_for(lambda: [len(each) for each in lines()] == [2, 2])
    assert lines() == [["ready []", "ready ['--resume']"], ["ready []", "ready []"]]


def test_children_drain_in_the_order_of_the_table(supervise_all: Starter, child: ChildMaker, tmp_path: Path) -> None:
    code = """
import pathlib, signal, sys, time
def end(*_):
    with open(pathlib.Path(__file__).with_name("ends"), "a") as file:
        file.write(pathlib.Path(__file__).stem + " ")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(60)
"""
    supervision = supervise_all(*(child(code, role) for role in ROLES))
    for role in ROLES:
        wait_until_ready(tmp_path, role.console_name(0))
    assert supervision.drain(is_hurried=never) is None
    *rest, last = (tmp_path / "ends").read_text().split()
    assert last == "eval_program"
    assert sorted(rest[:2]) == ["environment_program", "rlx_client_program"]
    assert sorted(rest[2:4]) == ["agent_program", "rlx_server_program"]
    assert sorted(rest[4:]) == ["learner_program", "ps_program"]


def test_a_learner_that_fails_while_it_ends_is_told(supervise_all: Starter, child: ChildMaker, tmp_path: Path) -> None:
    failing = WAIT.replace("sys.exit(0)", "sys.exit('error: the disk is full')")
    supervision = supervise_all(child(failing, EVAL), child(failing, LEARNER))
    for name in ("eval", "learner"):
        wait_until_ready(tmp_path, name)
    assert supervision.drain(is_hurried=never) == "learner ended in error: the disk is full"


def test_last_error_line_without_one_is_the_last_line(tmp_path: Path) -> None:
    console = tmp_path / "x.out"
    assert last_error_line(console) == "it left no output"
    console.write_text("Traceback\nValueError: no\n\n")
    assert last_error_line(console) == "ValueError: no"


def test_child_that_is_known_to_hang_is_not_waited_for_as_long(
    child: ChildMaker, supervise_all: Starter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "_HANGING_DRAIN_S", 0.1)
    hanging = child(STUBBORN, drain_timeout_s=10_000.0)
    supervision = supervise_all(hanging)
    wait_until_ready(tmp_path)
    assert hanging.process is not None
    problems = supervision.stop([hanging], is_hurried=never, hanging={hanging.process.pid})
    assert problems == {"agent-0": "agent-0 did not end in time and was killed"}
