"""Writers, readers and Redis of a DurableReplay are killed; every row is consumed exactly once."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surreal import DurableReplay
from tests.warm_python import WarmPython, environment_of_a_user

ROOT = Path(__file__).parents[2]
#: Kills of a writer, a reader and Redis in turn; `make kills` asks for more.
KILLS = int(os.environ.get("SURREAL_TEST_KILLS", "4"))
_WRITERS = _READERS = 2
_ROWS = 20
#: Rows of a put differ in number, and a batch has the parts of several.
_BATCH = 33

_WRITER = """
import sys, time
import numpy as np
from surreal import DurableReplay
address, writer, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
replay = DurableReplay("kills", address=address)
step = replay.last_step(writer) or 0
while True:
    step += 1
    first = (step - 1) * rows
    ids = np.arange(first, first + rows) + int(writer) * 10**9
    replay.put({"id": ids, "tokens": [np.full(id % 7, id) for id in ids]}, writer=writer, step=step)
    time.sleep(0.005)
"""
#: A reader whose only memory is its state: how often it had each row, by writer.
_READER = """
import json, sys
from surreal import DurableReplay
address, reader, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
replay = DurableReplay("kills", address=address, reader=reader, lease_s=1.0)
found = json.loads(replay.state() or b"{}")
while True:
    batch = replay.consume(size)
    for id, tokens in zip(batch["id"].tolist(), batch["tokens"]):
        assert tokens.tolist() == [id] * (id % 7)
        found[str(id)] = found.get(str(id), 0) + 1
    try:
        batch.commit(json.dumps(found).encode())
    except Exception as error:
        sys.exit(f"{error}")
"""


@pytest.mark.slow
@pytest.mark.timeout(300 + 20 * KILLS)
def test_every_row_is_consumed_once_whatever_is_killed(
    start_redis: Callable[..., Any], tmp_path: Path, warm_python: WarmPython
) -> None:
    server = start_redis(appendonly=True)
    processes: dict[str, Any] = {}

    def start(name: str) -> None:
        kind, _, number = name.partition("-")
        program, size = (_WRITER, _ROWS) if kind == "writer" else (_READER, _BATCH)
        with (tmp_path / f"{name}.log").open("ab") as log, open(os.devnull, "rb") as nothing:
            processes[name] = warm_python.start(
                ["-c", program, server.address, number, str(size)],
                folder=ROOT,
                environment=environment_of_a_user(),
                streams=(nothing.fileno(), log.fileno(), log.fileno()),
            )

    names = [f"writer-{i}" for i in range(_WRITERS)] + [f"reader-{i}" for i in range(_READERS)]
    try:
        for name in names:
            start(name)
        with DurableReplay("kills", address=server.address) as replay:
            for kind, number in zip(itertools.cycle(("writer", "reader", "redis")), range(KILLS), strict=False):
                _wait_for_progress(replay, processes, start)
                if kind == "redis":
                    server.kill()
                    server.start()
                else:
                    name = f"{kind}-{number // 3 % 2}"
                    processes[name].kill()
                    processes[name].wait()
                    start(name)
            _wait_for_progress(replay, processes, start)
            _end(processes, "writer")
            _wait_for_progress(replay, processes, start, until_rows=2 * _BATCH)
            _end(processes, "reader")
            _assert_once(replay)
    finally:
        _end(processes, "")


def _wait_for_progress(
    replay: DurableReplay,
    processes: dict[str, Any],
    start: Callable[[str], None],
    *,
    until_rows: int | None = None,
) -> None:
    """Wait until rows were put and consumed, or few are left; a reader that lost its lease begins again."""
    before, deadline_s = replay.counts(), time.monotonic() + 240
    while True:
        for name, process in list(processes.items()):
            if process.poll() is not None:
                assert name.startswith("reader"), f"{name} has ended"
                start(name)
        now = replay.counts()
        if until_rows is not None and now["rows"] < until_rows:
            return
        if until_rows is None and all(now[key] > before[key] + 100 for key in ("put", "consumed")):
            return
        assert time.monotonic() < deadline_s, f"{before}, then {now}"
        time.sleep(0.05)


def _end(processes: dict[str, Any], kind: str) -> None:
    for name in [name for name in processes if name.startswith(kind)]:
        process = processes.pop(name)
        process.kill()
        process.wait()


def _assert_once(replay: DurableReplay) -> None:
    """Compare the readers' states, and the rows that are left, with the rows of all steps of the writers."""
    seen: dict[int, int] = {}
    states = [json.loads(replay.state(str(i)) or b"{}") for i in range(_READERS)]
    for id_, count in itertools.chain.from_iterable(state.items() for state in states):
        seen[int(id_)] = seen.get(int(id_), 0) + count
    assert set(seen.values()) == {1}
    last = DurableReplay("kills", address=replay.address, reader="last", lease_s=0.01)
    while (batch := last.consume(1, timeout_s=1.0)) is not None:
        seen[int(batch["id"][0])] = seen.get(int(batch["id"][0]), 0) + 1
        batch.commit()
    last.close()
    assert set(seen.values()) == {1}
    steps = [replay.last_step(str(writer)) or 0 for writer in range(_WRITERS)]
    assert set(seen) == {writer * 10**9 + i for writer, step in enumerate(steps) for i in range(step * _ROWS)}
    assert replay.counts() == {"rows": 0, "put": len(seen), "consumed": len(seen), "stale": 0}
