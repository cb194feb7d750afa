"""The collector against a real Redis: each entry once, whatever is killed, emptied, full or hostile."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from surreal.base.system.files import older_path
from surreal.base.system.threads import Supervisor
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry import collector as module
from surreal.distributed.telemetry.collector import Collector
from surreal.distributed.telemetry.records import encode_log, encode_metrics, entry_fields
from surreal.distributed.telemetry.render import EVENT_NAME
from surreal.distributed.telemetry.telemetry import Telemetry
from tests.full_disk import files_end_at


def wait_until(condition: Callable[[], object], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail("condition not met in time")
        time.sleep(0.01)


def write(client: RedisClient, sequence: int, *, process: str = "p-1", name: str = "agent-0", **id_: Any) -> None:
    """Write what telemetry would: one metric whose value is the sequence number, and a log line."""
    lines = encode_metrics(time_s=float(sequence), step=sequence, values={"agent/n": float(sequence)})
    lines.append(encode_log(time_s=float(sequence), level="INFO", logger="x", message=f"line {sequence}"))
    fields: Any = entry_fields(process=process, name=name, role="agent", sequence=sequence, offset_s=0.0, lines=lines)
    client.redis.xadd(client.run_keys.log, fields, **id_)


def written(folder: Path) -> list[float]:
    file = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return [row["metrics"]["agent/n"] for row in rows]


@pytest.fixture
def collector(client: RedisClient, tmp_path: Path) -> Iterator[Collector]:
    collector = Collector(client, tmp_path, tensorboard=False)
    yield collector
    collector.close()


def test_everything_telemetry_says_arrives_in_the_folder(client: RedisClient, tmp_path: Path) -> None:
    agent, learner = Telemetry(client, "agent", "agent-0"), Telemetry(client, "learner", "learner")
    agent.scalar("score", 1.5, x=3)
    learner.histogram("weights", [1.0, 2.0], x=4)
    agent.handler.handle(logging.LogRecord("x", logging.INFO, "", 0, "hello", None, None))
    assert agent.step()
    assert learner.step()
    collector = Collector(client, tmp_path)
    assert collector.drain()
    collector.close()
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert {row["process"] for row in rows} == {"agent-0", "learner"}
    assert {"agent/score": 1.5} in [row.get("metrics") for row in rows]
    assert any("learner/weights" in row.get("histograms", {}) for row in rows)
    log = (tmp_path / "logs/agent-0.log").read_text()
    assert f"process {agent.id} (agent)" in log
    assert "hello" in log
    assert {path.name for path in (tmp_path / "tensorboard").iterdir()} == {"agent-0", "learner"}
    assert next((tmp_path / "tensorboard/learner").iterdir()).stat().st_size > 100


def test_a_returning_collector_goes_on_where_it_was(client: RedisClient, tmp_path: Path) -> None:
    for first in (1, 4, 7):
        for sequence in range(first, first + 3):
            write(client, sequence)
        collector = Collector(client, tmp_path)
        assert collector.drain()
        assert collector.step(0.0) == 0
        collector.close()
    assert written(tmp_path) == list(range(1, 10))
    assert (tmp_path / "logs/agent-0.log").read_text().count("process p-1") == 1


def test_files_are_bounded_and_begun_again_with_what_each_needs(
    client: RedisClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 300)
    monkeypatch.setattr(module, "MAX_METRICS_BYTES", 600)
    collector = Collector(client, tmp_path)
    for sequence in range(1, 41):
        write(client, sequence)
        assert collector.step(0.0) == 1
    collector.close()
    metrics, log = tmp_path / "metrics.jsonl", tmp_path / "logs" / "agent-0.log"
    events = tmp_path / "tensorboard" / "agent-0" / EVENT_NAME
    for path, most in ((metrics, 600), (log, 300), (events, 300)):
        for part in (older_path(path), path):
            assert 0 < part.stat().st_size < most + 200
    steps = [
        json.loads(line)["step"] for part in (older_path(metrics), metrics) for line in part.read_text().splitlines()
    ]
    assert steps == [*range(steps[0], 41)] and steps[0] > 1
    headers = [part.read_bytes()[:64].count(b"brain.Event:2") for part in (older_path(events), events)]
    assert headers == [1, 1]
    assert sorted(part.name for part in events.parent.iterdir())[-1] == events.name  # TensorBoard reads it last


def test_a_lost_cursor_repeats_nothing(client: RedisClient, tmp_path: Path) -> None:
    write(client, 1)
    write(client, 2)
    collector = Collector(client, tmp_path)
    assert collector.drain()
    collector.close()
    state = json.loads((tmp_path / "collector.json").read_text())
    (tmp_path / "collector.json").write_text(json.dumps(state | {"cursor": "0-0"}))
    again = Collector(client, tmp_path)
    assert again.drain()
    again.close()
    assert written(tmp_path) == [1, 2]


def test_repeated_and_late_entries_are_written_once_and_gaps_are_counted(
    client: RedisClient, collector: Collector, tmp_path: Path
) -> None:
    for sequence in (1, 2, 2, 1, 5, 3, 3):
        write(client, sequence)
    assert collector.drain()
    assert written(tmp_path) == [1, 2, 5, 3]
    assert collector.metrics() == {
        "collector/entries_total": 4.0,
        "collector/skipped_total": 0.0,
        "collector/lost_total": 1.0,
    }


def test_an_emptied_stream_is_followed_from_its_beginning_even_under_an_older_clock(
    client: RedisClient, tmp_path: Path
) -> None:
    collector = Collector(client, tmp_path)
    write(client, 1, id="900000000000000-0")
    assert collector.drain()
    client.redis.delete(client.run_keys.log)
    write(client, 1, id="5-0")
    write(client, 2, id="6-0")
    assert collector.drain()
    write(client, 3, id="7-0")
    assert collector.drain()
    collector.close()
    assert written(tmp_path) == [1, 2, 3]


@pytest.mark.parametrize("appendonly", [True, False], ids=["kept", "emptied"])
def test_a_killed_redis_costs_no_line_and_repeats_none(
    start_redis: Callable[..., Any], run_id: str, tmp_path: Path, appendonly: bool
) -> None:
    server = start_redis(appendonly=appendonly)
    with RedisClient(server.address, run=run_id) as client:
        collector = Collector(client, tmp_path, tensorboard=False)
        write(client, 1)
        write(client, 2)
        assert collector.drain()
        server.kill()
        assert collector.step(0.01) == 0
        assert not collector.drain(0.1)
        server.start()
        write(client, 3)
        assert collector.drain()
        collector.close()
    assert written(tmp_path) == [1, 2, 3]


def test_hostile_entries_are_skipped_and_counted(client: RedisClient, collector: Collector, tmp_path: Path) -> None:
    outside = tmp_path.parent / "outside"
    write(client, 1)
    client.redis.xadd(client.run_keys.log, {"lines": "x"})
    client.redis.xadd(client.run_keys.log, {os.urandom(8): os.urandom(100)})
    fields: Any = entry_fields(process="p-9", name="../../outside", role="r", sequence=1, offset_s=0.0, lines=b"{\n[]")
    client.redis.xadd(client.run_keys.log, fields)
    write(client, 1, process="p-2", name=f"{outside}/x")
    write(client, 2)
    assert collector.drain()
    assert written(tmp_path) == [1, 1, 2]
    assert collector.metrics()["collector/skipped_total"] == 4.0
    assert not outside.exists()
    assert all(path.is_relative_to(tmp_path) for path in tmp_path.rglob("*"))
    assert len(list((tmp_path / "logs").iterdir())) == 3


def test_only_so_many_files_are_made(
    client: RedisClient, collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surreal.distributed.telemetry.collector.MAX_FILES", 3)
    for number in range(6):
        write(client, 1, process=f"p-{number}", name=f"n-{number}")
        collector.drain()
    assert sorted(path.stem for path in (tmp_path / "logs").iterdir()) == ["n-0", "n-1", "others"]
    assert len(written(tmp_path)) == 6


def test_a_second_collector_waits_and_takes_over(client: RedisClient, tmp_path: Path) -> None:
    first = Collector(client, tmp_path, tensorboard=False)
    second = Collector(client, tmp_path, tensorboard=False)
    write(client, 1)
    assert first.drain()
    write(client, 2)
    assert second.step(0.01) == 0
    assert not second.drain(0.05)
    first.close()
    assert first.step(0.01) == 0
    assert second.drain()
    second.close()
    assert written(tmp_path) == [1, 2]


def test_a_full_disk_is_waited_for(client: RedisClient, collector: Collector, tmp_path: Path) -> None:
    write(client, 1)
    assert collector.drain()
    for sequence in range(2, 100):
        write(client, sequence)
    with files_end_at(1000):
        assert collector.step(0.0) == 0
        assert collector.disk_error is not None
        assert not collector.drain(0.05)
    assert written(tmp_path) == [1]
    assert collector.drain()
    assert collector.disk_error is None
    assert written(tmp_path) == list(range(1, 100))
    assert (tmp_path / "logs" / "agent-0.log").read_text().count("line 50") == 1


def test_old_entries_leave_redis_once_they_are_written(client: RedisClient, tmp_path: Path) -> None:
    now_ms = int(1000 * client.server_time_s())
    client.execute("CONFIG", "SET", "stream-node-max-entries", 2)
    try:
        for sequence in range(1, 11):
            write(client, sequence, id=f"{now_ms - 100_000 + sequence}-0")
        write(client, 11, id=f"{now_ms}-0")
        collector = Collector(client, tmp_path, tensorboard=False, keep_s=50.0)
        assert collector.drain()
        collector.close()
    finally:
        client.execute("CONFIG", "SET", "stream-node-max-entries", 100)
    assert written(tmp_path) == list(range(1, 12))
    assert 1 <= int(client.redis.xlen(client.run_keys.log)) <= 3  # type: ignore[arg-type]


def test_a_supervised_thread_follows_and_stops(client: RedisClient, collector: Collector, tmp_path: Path) -> None:
    supervisor = Supervisor("test")
    supervisor.spawn("collector", collector.step)
    for sequence in range(1, 4):
        write(client, sequence)
        wait_until(lambda expected=sequence: len(written(tmp_path)) == expected)
    supervisor.stop()
    assert supervisor.join(60.0)
    supervisor.check()


def _collect_for_ever(address: str, run: str, folder: str) -> None:
    collector = Collector(RedisClient(address, run=run), folder, tensorboard=False)
    while True:
        collector.step(0.01)


def test_a_killed_collector_loses_and_repeats_nothing(client: RedisClient, redis_server: Any, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    arguments = (redis_server.address, client.run, str(tmp_path))
    sequence = 0
    for _ in range(2):
        process = context.Process(target=_collect_for_ever, args=arguments, daemon=True)
        process.start()
        for _ in range(4):  # it is killed while it is busy: the last writes are not waited for
            count = len(written_whole_lines(tmp_path))
            for _ in range(100):
                sequence += 1
                write(client, sequence)
            wait_until(lambda seen=count: len(written_whole_lines(tmp_path)) > seen)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
    collector = Collector(client, tmp_path)
    assert collector.drain()
    collector.close()
    assert written(tmp_path) == list(range(1, sequence + 1))
    log = (tmp_path / "logs/agent-0.log").read_text()
    assert [line.rsplit(" ", 1)[1] for line in log.splitlines() if "line" in line] == [
        str(number) for number in range(1, sequence + 1)
    ]


def written_whole_lines(folder: Path) -> list[str]:
    file = folder / "metrics.jsonl"
    return file.read_text().splitlines() if file.exists() else []


def test_bad_arguments_are_refused(client: RedisClient, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="keep_s"):
        Collector(client, tmp_path, keep_s=0.0)
