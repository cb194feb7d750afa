"""Shares of time out of py-spy's events, and what a process is called."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from surreal.base.errors import SurrealError
from surreal.config import load_config
from surreal.plugins.profile import recording, shares
from surreal.plugins.profile.commands import with_kernels
from surreal.plugins.profile.kernels import CLASS_PATH, KernelRecorder
from surreal.plugins.profile.recording import Frame, read_events, record_run, write_timeline
from surreal.plugins.profile.shares import WAITING, kind_of, percentages, print_shares, shares_of
from surreal.run.observers.making import check_observers

LEARNER = ("/x/surreal/run/roles/learner.py", "run", 5)
UPDATE = ("/x/surreal/learner/base.py", "optimize", 7)
TORCH = ("/x/torch/optim/adam.py", "step", 9)


def events(*spans: tuple[float, float, list[tuple[str, str, int]]], pid: int = 1, tid: int = 1) -> list[dict[str, Any]]:
    """Write what py-spy writes for a thread that is in a stack from one time to another, in seconds."""
    found = []
    for begin, end, stack in spans:
        for phase, frames, time_s in (("B", stack, begin), ("E", stack[::-1], end)):
            for file, function, line in frames:
                args = {"filename": file, "line": line}
                found.append(
                    {"ph": phase, "name": function, "args": args, "pid": pid, "tid": tid, "ts": int(time_s * 1e6)}
                )
    return found


def test_a_threads_time_is_divided_by_its_innermost_functions(tmp_path: Path) -> None:
    waiting = tmp_path / "waiting.py"
    waiting.write_text("def wait(event):\n    event.wait(1.0)\n    return ', '\n")
    spans = [
        (0.0, 3.0, [LEARNER, UPDATE, TORCH]),
        (3.0, 4.0, [LEARNER, UPDATE, (str(waiting), "wait", 2)]),
        (4.0, 6.0, [LEARNER, ("/x/surreal/replay/base.py", "sample", 3), (str(waiting), "wait", 3)]),
        (6.0, 7.0, [LEARNER]),
        (8.0, 10.0, [LEARNER, ("/x/surreal/envs/pools/envpool.py", "recv", 1)]),
    ]
    (thread,) = read_events([events(*spans)], {}).threads
    found = {column: share for column, share in shares_of(thread).items() if share}
    seconds = {"update": 3, WAITING: 1, "sampling": 2, "other": 1, "environment": 2}
    assert found == pytest.approx({column: part / 9 for column, part in seconds.items()})


@pytest.mark.parametrize(
    ("stack", "kind"),
    [
        ([UPDATE, ("/x/surreal/model/mlp.py", "forward", 1), TORCH], "update"),
        ([("/x/surreal/agent/loop.py", "run", 1), ("/x/surreal/model/mlp.py", "forward", 1)], "acting"),
        ([("/x/surreal/agent/loop.py", "run", 1), ("/y/gymnasium/envs/a.py", "step", 1)], "environment"),
        ([("/x/surreal/agent/loop.py", "run", 1), ("/x/surreal/distributed/experience/codec.py", "e", 1)], "encoding"),
        ([UPDATE, ("<frozen importlib._bootstrap>", "_load", 1)], "starting"),
        ([("/home/someone/my_program.py", "<module>", 1)], "other"),
    ],
)
def test_torch_and_models_belong_to_their_caller(stack: list[tuple[str, str, int]], kind: str) -> None:
    assert kind_of(tuple(Frame(*frame) for frame in stack)) == kind


@pytest.mark.parametrize(
    ("line", "blocks"),
    [
        ("event.wait(1.0)", True),
        ("thread.join(5.0)", True),
        ("self._sock.recv_into(buffer)", True),
        ("time.sleep(0.1)", True),
        ('return b"".join(parts)', False),
        ("path = os.path.join(a, b)", False),
        ("model.read(x)", False),
    ],
)
def test_a_line_that_computes_is_no_wait(line: str, blocks: bool, tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text(f"{line}\n")
    assert (kind_of((Frame(*LEARNER), Frame(str(file), "f", 1))) == WAITING) == blocks


def test_processes_are_named_by_heartbeats_or_by_what_they_call() -> None:
    parts = [
        events((0, 1, [LEARNER]), pid=1),
        events((0, 1, [("/x/surreal/run/roles/agent.py", "run", 1)]), pid=2),
        events((0, 1, [("/x/surreal/run/roles/agent.py", "run", 1)]), pid=3),
        # It has only imported the learner.
        events((0, 1, [("/x/surreal/run/launch/fork_server.py", "serve", 1), (LEARNER[0], "<module>", 1)]), pid=4),
        events((0, 1, [("/x/other.py", "f", 1)]), pid=5),
    ]
    names = read_events([[event for part in parts for event in part]], {2: "agent-0"}).names
    assert names == {1: "learner", 2: "agent-0", 3: "agent", 4: "fork server", 5: "helper"}


def test_parts_on_clocks_of_their_own_are_not_mixed() -> None:
    found = read_events([events((5, 6, [UPDATE]), pid=1), events((0, 3, [UPDATE]), pid=2)], {})
    assert [sum(span.duration_s for span in thread.spans) for thread in found.threads] == [1, 3]


Places = list[tuple[str, str, int]]


def as_py_spy(*samples: tuple[float, int, Places], end: float, tid: int = 1) -> list[dict[str, Any]]:
    """Write samples (time, pid, stack) of a thread number as py-spy does: as differences from the one before."""
    found: list[dict[str, Any]] = []

    def add(phase: str, pid: int, time_s: float, frames: Places) -> None:
        for file, function, line in frames:
            args = {"filename": file, "line": line}
            found.append({"ph": phase, "name": function, "args": args, "pid": pid, "tid": tid, "ts": time_s * 1e6})

    before: Places = []
    pid = 0
    for time_s, pid, stack in samples:
        named = [("", f"process {pid}", 0), *stack]
        same = next((i for i, pair in enumerate(zip(before, named, strict=False)) if pair[0] != pair[1]), len(before))
        same = min(same, len(named))
        add("E", pid, time_s, before[same:][::-1])
        add("B", pid, time_s, named[same:])
        before = named
    add("E", pid, end, before[::-1])
    return found


FORK = ("/x/surreal/run/launch/fork_server.py", "serve", 1)
AGENT = ("/x/surreal/run/roles/agent.py", "run", 5)
ACTING = ("/x/surreal/agent/loop.py", "step", 5)


def forked() -> list[dict[str, Any]]:
    """Two forked processes, whose main threads have one number; the agent ends first, and another thread lives on."""
    main = as_py_spy(
        (0.0, 7, [FORK, LEARNER, UPDATE]),
        (0.1, 8, [FORK, AGENT, ACTING]),
        (1.0, 7, [FORK, LEARNER, UPDATE, TORCH]),
        (2.1, 8, [FORK, AGENT]),
        (3.0, 7, [FORK, LEARNER]),
        (4.0, 7, [FORK]),
        end=6.0,
    )
    return main + as_py_spy((0.2, 8, [AGENT, ACTING]), end=6.0, tid=2)


def test_forked_processes_that_share_a_threads_number_are_told_apart() -> None:
    found = read_events([forked()], {})
    assert found.names == {7: "learner", 8: "agent"}
    spans = {(each.pid, each.number): each.spans for each in found.threads}
    assert [(*span[:2], span.stack[-1].function) for span in spans[7, 1]] == [
        (0.0, 1.0, "optimize"), (1.0, 3.0, "step"), (3.0, 4.0, "run"), (4.0, 6.0, "serve")
    ]  # fmt: skip
    assert [(*span[:2], [frame.function for frame in span.stack]) for span in spans[8, 1]] == [
        (0.1, 2.1, ["serve", "run", "step"]),
        (2.1, 3.0, ["serve", "run"]),
    ]
    # The agent was not seen again: what its other thread was in did not last until the end of the recording.
    assert [span[:2] for span in spans[8, 2]] == [(0.2, 3.0)]


def test_a_timeline_ends_each_function_that_it_begins_in_its_own_thread(tmp_path: Path) -> None:
    write_timeline(read_events([forked()], {}), tmp_path / "a.json")
    stacks: dict[tuple[int, int], list[str]] = {}
    written = [event for event in json.loads((tmp_path / "a.json").read_text())["traceEvents"] if event["ph"] != "M"]
    for event in written:
        stack = stacks.setdefault((event["pid"], event["tid"]), [])
        if event["ph"] == "B":
            stack.append(event["name"])
        else:
            assert stack.pop() == event["name"]
    assert len(stacks) == 3 and not any(stacks.values())
    assert not any(event["name"].startswith("process ") for event in written)


def test_percentages_add_up_to_100() -> None:
    assert percentages({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3, "d": 0.0}) == {"a": 34, "b": 33, "c": 33, "d": 0}
    assert percentages({"a": 0.005, "b": 0.995}) == {"a": 1, "b": 99}
    assert percentages({"a": 1.0}) == {"a": 100}


def test_the_table_has_busy_threads_and_what_helps() -> None:
    idle = events((0, 1, [("/usr/lib/threading.py", "Thread._bootstrap", 1), (__file__, "f", blocking_line())]), tid=2)
    idle += events((0, 9, [FORK]), pid=2)
    found = read_events([events((0, 9, [LEARNER, UPDATE])) + idle], {1: "learner"})
    console = Console(width=200, file=io.StringIO())
    print_shares(found, console)
    _, learner, *rest = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert learner.split()[:4] == ["learner", "main", "9.0", "100%"]
    assert rest == ["the learner computes: a smaller network, fewer epochs, or a GPU (device)"]


def blocking_line() -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip().startswith("time.sleep(0)"))


def block() -> None:
    import time

    time.sleep(0)


def test_the_timeline_is_chromes_format_with_names(tmp_path: Path) -> None:
    found = read_events([events((0, 1, [UPDATE]))], {1: "learner"})
    for name, read in (("a.json", Path.read_bytes), ("b.json.gz", lambda path: gzip.decompress(path.read_bytes()))):
        write_timeline(found, tmp_path / "new" / name)
        process, thread, begin, end = json.loads(read(tmp_path / "new" / name))["traceEvents"]
        assert process == {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "learner (1)"}}
        assert thread == {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "main"}}
        place = {"filename": UPDATE[0], "line": UPDATE[2]}
        assert begin == {"name": UPDATE[1], "ph": "B", "pid": 1, "tid": 1, "ts": 0.0, "args": place}
        assert end == {"name": UPDATE[1], "ph": "E", "pid": 1, "tid": 1, "ts": 1e6}


def test_without_py_spy_and_without_processes_here_it_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from surreal.run.view.run_view import summarize_processes

    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(SurrealError, match=r"needs py-spy, which is not installed; run: pip install .*profile"):
        recording.record_start("cartpole-dqn", [], seconds=1, rate=10)

    class Reader:
        def __init__(self, client: object) -> None: ...

        def read(self) -> Any:
            return summarize_processes([])

    class Client:
        run = "elsewhere"

    monkeypatch.setattr(recording, "RunReader", Reader)
    with pytest.raises(SurrealError, match="no process of run elsewhere is on this machine"):
        record_run(Client(), seconds=1, rate=10)  # type: ignore[arg-type]
    assert shares.COLUMNS[-1] == WAITING


def test_a_run_that_fails_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """py-spy itself ends well."""

    class Done:
        returncode = 0

    def run(command: list[str], **_: Any) -> Done:
        file = Path(command[command.index("--output") + 1])
        file.write_text(json.dumps(events((0, 1, [("/x/surreal/run/launch/launcher.py", "execute", 1)]))))
        return Done()

    monkeypatch.setattr("shutil.which", lambda *_, **__: "py-spy")
    monkeypatch.setattr("subprocess.run", run)
    with pytest.raises(SurrealError, match="the run ended before it could learn; its own message, above"):
        recording.record_start("cartpole-dqn", [], seconds=1, rate=10)


class Learner:
    """Its updates are additions."""

    def update(self) -> None:
        torch.ones(100).add_(1.0)


@pytest.mark.parametrize(("updates", "recorded"), [(10, 4), (5, 2)])
def test_kernels_of_some_updates_are_written_also_if_the_run_ends_before(
    updates: int, recorded: int, tmp_path: Path
) -> None:
    learner, recorder = Learner(), KernelRecorder(str(tmp_path), updates=4, process="learner")
    for _ in range(updates):
        learner.update()
        recorder.on_update(learner)  # type: ignore[arg-type]
    recorder.close()
    (row,) = [line for line in (tmp_path / "learner.txt").read_text().splitlines() if "aten::add_ " in line]
    assert int(row.split()[-1]) == recorded
    assert "aten::add_" in gzip.decompress((tmp_path / "learner.json.gz").read_bytes()).decode()


def test_a_process_without_updates_writes_no_kernels(tmp_path: Path) -> None:
    KernelRecorder(str(tmp_path), process="agent-0").close()
    assert not list(tmp_path.iterdir())


def test_the_recorder_is_added_to_a_configurations_own_callbacks(tmp_path: Path) -> None:
    own = 'callbacks=[{"class": "surreal.run.observers.Callback"}]'
    config = load_config("cartpole-dqn", with_kernels("cartpole-dqn", [own], str(tmp_path)))
    assert [each.class_path for each in config.callbacks] == ["surreal.run.observers.Callback", CLASS_PATH]
    check_observers(config)


def test_what_one_program_started_is_recorded_by_one_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher 10 started 11 and 12, a shell 20 started 21, and 11 started 13."""
    parents = {11: 10, 12: 10, 13: 11, 21: 20, 10: 1, 20: 1}

    class Process:
        def __init__(self, pid: int) -> None:
            self.pid = pid

        def parent(self) -> Process | None:
            return Process(parents[self.pid]) if self.pid in parents else None

        def parents(self) -> list[Process]:
            parent = self.parent()
            return [] if parent is None else [parent, *parent.parents()]

        def exe(self) -> str:
            return "/usr/bin/python3.11" if self.pid in (10, 11) else "/bin/sh"

    monkeypatch.setattr("psutil.Process", Process)
    assert recording.roots_of([11, 12, 13, 21]) == [10, 21]
