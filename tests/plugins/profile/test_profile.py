"""Shares of time out of py-spy's events, and what a process is called."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from surreal.plugins.profile import recording, shares
from surreal.plugins.profile.recording import Frame, read_events, record_run, write_timeline
from surreal.plugins.profile.shares import WAITING, kind_of, print_shares, shares_of

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
    assert [sum(seconds for seconds, _ in thread.spans) for thread in found.threads] == [1, 3]


def test_the_table_has_busy_threads_and_what_helps() -> None:
    idle = events((0, 1, [("/usr/lib/threading.py", "_bootstrap", 1), (__file__, "f", blocking_line())]), tid=2)
    found = read_events([events((0, 9, [LEARNER, UPDATE])) + idle], {1: "learner"})
    console = Console(width=200, file=io.StringIO())
    print_shares(found, console)
    _, learner, *rest = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert learner.split()[:3] == ["learner", "main", "100%"]
    assert rest == ["the learner computes: a smaller network, fewer epochs, or a GPU (learner.device)"]


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
        title, *rest = json.loads(read(tmp_path / "new" / name))["traceEvents"]
        assert title == {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "learner (1)"}}
        assert rest == found.events


def test_without_py_spy_and_without_processes_here_it_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from surreal.base.errors import SurrealError
    from surreal.run.view.run_view import summarize_processes

    monkeypatch.setattr(recording.shutil, "which", lambda *_, **__: None)
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
