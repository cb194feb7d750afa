"""One benchmark at a time on a machine, and what `make learn` runs is stopped meanwhile."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from benchmarks.alone import Span, alone, find_benchmark, overlap_s, run_between_benchmarks
from surreal.distributed.telemetry.heartbeats import ALIVE_S

ROOT = Path(__file__).parents[2]
_HOLD = """
import sys
from benchmarks.alone import alone
with alone():
    print("held", flush=True)
    sys.stdin.read()
"""
_PAUSE = """
import sys
from benchmarks.alone import run_between_benchmarks
run_between_benchmarks(sys.argv[1:], [])
"""
#: A process with a child in a session of its own, as the processes of a run are; both end with a file.
_FAMILY = """
import pathlib, subprocess, sys, time
folder = pathlib.Path(sys.argv[1])
wait = "import pathlib, time\\nwhile not pathlib.Path({!r}).exists(): time.sleep(0.01)".format(str(folder / "end"))
child = subprocess.Popen([sys.executable, "-c", wait], start_new_session=True)
(folder / "child.new").write_text(str(child.pid))
(folder / "child.new").rename(folder / "child")
print(child.wait())
"""


@pytest.fixture(autouse=True)
def _own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def wait_for(condition: Callable[[], object], what: str, timeout_s: float = 120.0) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {timeout_s:g} s for {what}"
        time.sleep(0.02)


def are_stopped(*pids: int) -> bool:
    return all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in pids)


@contextmanager
def start_python(program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process
        process.kill()


@contextmanager
def run_in_thread(*command: str) -> Iterator[list[tuple[subprocess.CompletedProcess[str], list[Span]]]]:
    """Run a command between benchmarks; the list has how it ended, after the block."""
    found: list[tuple[subprocess.CompletedProcess[str], list[Span]]] = []
    active: list[Span] = []
    thread = threading.Thread(target=lambda: found.append((run_between_benchmarks(command, active), active)))
    thread.start()
    yield found
    thread.join()


def read_line(process: subprocess.Popen[str], name: str) -> str:
    line: str = getattr(process, name).readline()
    return line.strip()


def test_second_benchmark_waits_for_the_first_and_names_it() -> None:
    with start_python(_HOLD) as first:
        assert read_line(first, "stdout") == "held"
        assert f"process {first.pid}, " in find_benchmark()
        with start_python(_HOLD) as second:
            waits = read_line(second, "stderr")
            assert waits.startswith(f"waiting for another benchmark: process {first.pid}, {sys.executable}"), waits
            first.kill()
            assert read_line(second, "stdout") == "held"
            assert f"process {second.pid}, " in find_benchmark()
    assert not find_benchmark()


def test_long_run_is_stopped_with_all_its_processes_until_the_benchmark_is_killed(tmp_path: Path) -> None:
    began_s = time.time()
    with run_in_thread(sys.executable, "-c", _FAMILY, str(tmp_path)) as found:
        wait_for((tmp_path / "child").exists, "the child")
        child = int((tmp_path / "child").read_text())
        parent = psutil.Process(child).ppid()
        with start_python(_HOLD) as benchmark:
            wait_for(lambda: are_stopped(parent, child), "the stop")
            (tmp_path / "end").touch()
            benchmark.send_signal(signal.SIGKILL)
    ((ended, active),) = found
    assert (ended.returncode, ended.stdout, len(active)) == (0, "0\n", 2)
    assert 0 < overlap_s(active, began_s, time.time()) < time.time() - began_s


def test_processes_continue_when_the_process_that_stopped_them_is_killed(tmp_path: Path) -> None:
    with start_python(_PAUSE, sys.executable, "-c", _FAMILY, str(tmp_path)) as learn:
        wait_for((tmp_path / "child").exists, "the child")
        child = int((tmp_path / "child").read_text())
        with alone():
            wait_for(lambda: are_stopped(child), "the stop")
            learn.kill()
            (tmp_path / "end").touch()
            wait_for(lambda: not psutil.pid_exists(child), "the child's end")


def test_spans_count_as_far_as_they_lie_in_the_measured_time() -> None:
    spans = [Span(0.0, 2.0), Span(5.0, 6.0), Span(9.0, 20.0)]
    assert overlap_s(spans, 1.0, 10.0) == 1.0 + 1.0 + 1.0
    assert overlap_s(spans, 2.0, 5.0) == 0.0


def works_in(process: psutil.Process, run_dir: Path) -> bool:
    try:
        return str(run_dir) in process.cmdline()
    except psutil.ZombieProcess:  # of a test before
        return False


@pytest.mark.slow
def test_run_survives_a_stop_longer_than_heartbeats_claims_and_leases_last(tmp_path: Path) -> None:
    run_dir, metrics = tmp_path / "run", tmp_path / "run" / "metrics.jsonl"
    settings = ["--set=run.max_env_steps=15000", "--set=run.stop_at_return=null", "--run-dir", str(run_dir)]
    settings += [
        "--set=replay.start_size=200",
        "--set=replay.samples_per_insert=8",
        "--set=eval.episodes=1",
        "--set=eval.confirm_episodes=0",
    ]
    with run_in_thread(sys.executable, "-m", "surreal", "run", "cartpole-dqn", "--quiet", *settings) as found:
        wait_for(lambda: metrics.exists() and '"learner/updates_total"' in metrics.read_text(), "the first updates")
        (launcher,) = (each for each in psutil.Process().children() if works_in(each, run_dir))
        processes = {each.pid for each in (launcher, *launcher.children(recursive=True))}
        with alone():
            wait_for(lambda: are_stopped(*processes), "the stop")
            stopped_s = time.monotonic()
            wait_for(lambda: time.monotonic() - stopped_s > 1.2 * ALIVE_S, "the end of all heartbeats")
    ((ended, active),) = found
    assert ended.returncode == 0, ended.stderr
    assert json.loads((run_dir / "result.json").read_text())["env_steps"] >= 15_000
    logs = "".join(path.read_text() for path in (run_dir / "logs").iterdir())
    assert "restart" not in logs, logs
    before, after = active
    assert after.began_s - before.ended_s > 1.2 * ALIVE_S
