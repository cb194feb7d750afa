"""Telemetry against a real Redis: what it sends, and what it does when Redis is away, full or hostile."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from surreal.base.metrics import Reading, summarize
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.heartbeats import all_processes, live_processes
from surreal.distributed.telemetry.records import MAX_ENTRY_BYTES, LogEntry, decode_entry
from surreal.distributed.telemetry.telemetry import Telemetry


def wait_until(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail("condition not met in time")
        time.sleep(0.01)


def entries_of(client: RedisClient) -> list[LogEntry]:
    found: Any = client.redis.xrange(client.run_keys.log)
    return [decode_entry(fields) for _, fields in found]


def lines_of(client: RedisClient, kind: str) -> list[dict[str, Any]]:
    return [line for entry in entries_of(client) for line in entry.lines if line["kind"] == kind]


def fill(client: RedisClient) -> None:
    """Bring the server to its maxmemory."""
    used: Any = client.redis.info("memory")
    client.execute("CONFIG", "SET", "maxmemory", int(used["used_memory"]) - 1)


def make_room(client: RedisClient) -> None:
    client.execute("CONFIG", "SET", "maxmemory", 0)


@pytest.fixture
def private(start_redis: Callable[..., Any], run_id: str) -> Iterator[tuple[Any, RedisClient]]:
    server = start_redis()
    with RedisClient(server.address, run=run_id) as client:
        yield server, client


def test_a_field_that_is_not_watched_is_left_to_its_owner(client: RedisClient) -> None:
    telemetry = Telemetry(client, "eval", "eval")

    def read_step() -> int:
        telemetry.version = 5  # set by another thread while the step is read
        return 7

    telemetry.version = 4
    telemetry.watch(global_step=read_step)
    assert telemetry.step()
    assert (telemetry.version, telemetry.global_step) == (5, 7)


def test_an_interval_is_one_entry_with_everything_in_it(client: RedisClient) -> None:
    telemetry = Telemetry(client, "agent", "agent-0")
    telemetry.add_source(lambda: {"agent/env_steps_per_s": 10.0})
    telemetry.watch(version=lambda: 3, global_step=lambda: 500)
    pulled_histograms = [{"weights/torso.0": summarize([3.0, 4.0])}, {}]
    telemetry.add_histograms(pulled_histograms.pop)
    readings = [[], [Reading(1_700_000_000.0, 490 + i, {"learner/my loss": 0.5 + i}) for i in range(2)], []]
    telemetry.add_readings(readings.pop)
    assert telemetry.step()
    telemetry.scalar("score", 1.5)
    telemetry.scalar("agent/loss", float("nan"), x=7)
    telemetry.histogram("weights", [1.0, 2.0])
    telemetry.episode(20.0, 10)
    assert telemetry.step()
    first, second = entries_of(client)
    assert (first.sequence, second.sequence) == (1, 2)
    assert first.process == telemetry.id
    by_kind: dict[str, list[dict[str, Any]]] = {"metrics": [], "histogram": []}
    for line in second.lines:
        by_kind[line["kind"]].append(line)
    score, loss, *read, pulled = by_kind["metrics"]
    assert [(line["step"], line["values"]) for line in read] == [
        (490, {"learner/my_loss": 0.5}),
        (491, {"learner/my_loss": 1.5}),
    ]
    assert telemetry.step()
    assert "learner/my_loss" not in entries_of(client)[2].lines[0]["values"], "a reading is reported once"
    (beat,) = live_processes(client)
    assert (beat.reading.step, beat.reading.values) == (491, {"learner/my_loss": 1.5})
    assert (score["values"], score["step"]) == ({"agent/score": 1.5}, 500)
    assert loss["step"] == 7
    assert pulled["values"]["agent/env_steps_per_s"] == 10.0
    assert pulled["values"]["agent/episode_return"] == 20.0
    assert [line["name"] for line in by_kind["histogram"]] == ["agent/weights", "weights/torso.0"]
    assert by_kind["histogram"][1]["step"] == 500


def test_heartbeat_shows_progress_and_goes_with_an_orderly_end(client: RedisClient) -> None:
    with Telemetry(client, "agent", "agent-0", interval_s=0.01) as telemetry:
        telemetry.version = 4
        telemetry.global_step = 99
        telemetry.scalar("agent/score", 2.5)
        wait_until(lambda: any(beat.metrics.get("agent/score") == 2.5 for beat in live_processes(client)))
        (beat,) = live_processes(client)
        assert (beat.id, beat.role, beat.version, beat.global_step) == (telemetry.id, "agent", 4, 99)
        wait_until(lambda: telemetry.is_connected)
    assert all_processes(client) == []


def test_a_process_that_was_killed_grows_stale(client: RedisClient) -> None:
    assert Telemetry(client, "agent", "killed").step()
    assert [beat.name for beat in live_processes(client)] == ["killed"]
    assert [beat.name for beat in all_processes(client)] == ["killed"]


def test_heartbeats_of_the_long_dead_are_cleared(client: RedisClient) -> None:
    dead = Telemetry(client, "agent", "dead")
    assert dead.step()
    beat = client.redis.hget(client.run_keys.processes, dead.id)
    old: Any = json.loads(beat)  # type: ignore[arg-type]
    old["time"] -= 10_000
    client.redis.hset(client.run_keys.processes, dead.id, json.dumps(old))
    client.redis.hset(client.run_keys.processes, "nonsense", "{")
    assert Telemetry(client, "agent", "new").step()
    assert [found.name for found in all_processes(client)] == ["new"]
    assert client.redis.hlen(client.run_keys.processes) == 1


def test_the_clock_of_the_server_counts(client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 5000.0)
    telemetry = Telemetry(client, "agent", "slow-clock")
    telemetry.step()
    telemetry.step()
    assert len(live_processes(client)) == 1
    assert entries_of(client)[-1].offset_s == pytest.approx(5000.0, abs=5.0)


def test_stop_reason_arrives_and_is_told_once(client: RedisClient) -> None:
    told: list[str] = []
    telemetry = Telemetry(client, "agent", "agent-0", on_stop=told.append)
    telemetry.step()
    assert telemetry.stop_reason is None
    client.redis.set(client.run_keys.stop, "max_env_steps reached")
    telemetry.step()
    telemetry.step()
    assert telemetry.stop_reason == "max_env_steps reached"
    assert told == ["max_env_steps reached"]


def test_logs_of_any_logger_and_thread_arrive_also_at_the_end(client: RedisClient) -> None:
    logger = logging.getLogger("some.user.module")
    logger.setLevel(logging.INFO)
    telemetry = Telemetry(client, "eval", "eval", interval_s=60.0)
    telemetry.start()
    thread = threading.Thread(target=logger.info, args=("from %s", "a thread"))
    thread.start()
    thread.join()
    logger.error("the last word")
    telemetry.stop()
    logger.error("after the end")
    telemetry.stop()
    messages = [line["message"] for line in lines_of(client, "log") if line["logger"] == "some.user.module"]
    assert messages == ["from a thread", "the last word"]


def test_intervals_on_two_threads_take_turns(client: RedisClient) -> None:
    reasons: list[str] = []
    telemetry = Telemetry(client, "agent", "agent-0", interval_s=0.0001, on_stop=reasons.append)
    with telemetry:
        for number in range(100):
            telemetry.scalar("agent/score", number)
            assert telemetry.step()
        client.redis.set(client.run_keys.stop, "enough")
        assert telemetry.step()
        assert reasons == ["enough"]
    scores = [line["values"]["agent/score"] for line in lines_of(client, "metrics") if "agent/score" in line["values"]]
    assert scores == list(range(100))
    sequences = [entry.sequence for entry in entries_of(client)]
    assert sequences == list(range(1, len(sequences) + 1))


def test_a_broken_source_silences_nobody(client: RedisClient, caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry(client, "agent", "agent-0")

    def broken() -> dict[str, float]:
        raise RuntimeError("no metrics")

    telemetry.add_source(broken)
    telemetry.add_source(lambda: {"agent/text": "x"})  # type: ignore[dict-item]
    telemetry.add_source(lambda: {"agent/fine": 1.0})
    telemetry.add_histograms(broken)  # type: ignore[arg-type]
    telemetry.watch(global_step=lambda: 1 // 0)
    assert telemetry.step()
    assert telemetry.step()
    assert "agent/fine" in lines_of(client, "metrics")[-1]["values"]
    assert caplog.text.count("RuntimeError: no metrics") == 1


def test_a_storm_of_logs_is_bounded_counted_and_told(client: RedisClient) -> None:
    telemetry = Telemetry(client, "agent", "agent-0", max_buffer_bytes=200_000)
    telemetry.step()
    for number in range(2000):
        record = logging.LogRecord("storm", logging.INFO, "", 0, "%d %s", (number, "x" * 1000), None)
        telemetry.handler.handle(record)
    telemetry.step()
    while telemetry._shipper.has_backlog:
        telemetry.step()
    shipped = [line for line in lines_of(client, "log") if line["logger"] == "storm"]
    assert 100 < len(shipped) < 300
    assert shipped[-1]["message"].startswith("1999 ")
    assert telemetry.metrics()["telemetry/dropped_lines_total"] == 2000 - len(shipped)
    reports = [line["message"] for line in lines_of(client, "log") if "were dropped" in line["message"]]
    assert reports == [f"{2000 - len(shipped)} lines of logs and metrics were dropped"]
    sizes: Any = [len(fields[b"lines"]) for _, fields in client.redis.xrange(client.run_keys.log)]  # type: ignore[union-attr]
    assert max(sizes) <= MAX_ENTRY_BYTES


def test_redis_away_costs_nothing_but_a_delay(
    private: tuple[Any, RedisClient], caplog: pytest.LogCaptureFixture
) -> None:
    server, client = private
    telemetry = Telemetry(client, "agent", "agent-0")
    assert telemetry.step()
    server.kill()
    telemetry.scalar("agent/score", 7.0)
    for _ in range(3):
        assert not telemetry.step()
    assert not telemetry.is_connected
    assert telemetry.metrics()["telemetry/errors_total"] == 3.0
    server.start()
    assert telemetry.step()
    assert telemetry.is_connected
    assert {"agent/score": 7.0} in [line["values"] for line in lines_of(client, "metrics")]
    assert len(live_processes(client)) == 1
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1


def test_the_stream_keeps_fewer_of_large_entries(client: RedisClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surreal.distributed.telemetry.shipper.STREAM_BYTES", 1 << 20)
    telemetry = Telemetry(client, "agent", "agent-0", max_buffer_bytes=8 << 20)
    large: Any = "x" * 4000
    record = logging.LogRecord("x", logging.ERROR, "", 0, large, None, None)
    for _ in range(1000):  # 4 MB, in entries of 64 KiB
        telemetry.handler.handle(record)
    wait_until(lambda: telemetry.step() and not telemetry._shipper.has_backlog)
    used: Any = client.redis.memory_usage(client.run_keys.log, samples=0)
    assert used < 1.5 * (1 << 20)
    for _ in range(200):
        telemetry.step()
    assert client.redis.xlen(client.run_keys.log) > 200, "small ones do not push each other out"


def test_tracebacks_of_an_outage_arrive_behind_the_metrics_of_it(private: tuple[Any, RedisClient]) -> None:
    server, client = private
    telemetry = Telemetry(client, "agent", "agent-0")
    server.kill()
    for number in range(3000):  # more than one round trip may send
        telemetry.scalar("loss", number, number)
    for number in range(100):
        try:
            raise RuntimeError(f"fault {number}")
        except RuntimeError as error:
            telemetry.handler.handle(
                logging.LogRecord("x", logging.ERROR, "", 0, "lost", None, (type(error), error, None))
            )
    assert not telemetry.step()
    server.start()
    wait_until(lambda: telemetry.step() and not telemetry._shipper.has_backlog)
    assert [line["exception"] for line in lines_of(client, "log") if line["message"] == "lost"] == [
        f"RuntimeError: fault {number}" for number in range(100)
    ]
    assert telemetry.metrics()["telemetry/dropped_lines_total"] == 0


def test_starting_and_stopping_without_redis_is_quick_and_quiet(start_redis: Callable[..., Any], run_id: str) -> None:
    server = start_redis()
    server.kill()
    with RedisClient(server.address, run=run_id) as client, Telemetry(client, "agent", "agent-0", interval_s=0.01):
        logging.getLogger("x").warning("nobody hears this")


def test_a_full_redis_delays_and_loses_nothing(private: tuple[Any, RedisClient]) -> None:
    _, client = private
    telemetry = Telemetry(client, "agent", "agent-0")
    assert telemetry.step()
    client.redis.set(client.run_keys.stop, "enough")
    fill(client)
    telemetry.scalar("agent/score", 1.0)
    assert not telemetry.step()
    telemetry.scalar("agent/score", 2.0)
    assert not telemetry.step()
    assert telemetry.stop_reason == "enough"
    make_room(client)
    assert telemetry.step()
    scores = [line["values"] for line in lines_of(client, "metrics") if "agent/score" in line["values"]]
    assert scores == [{"agent/score": 1.0}, {"agent/score": 2.0}]
    assert [entry.sequence for entry in entries_of(client)] == [1, 2, 3, 4]


def test_what_redis_will_never_take_is_dropped_and_counted(client: RedisClient) -> None:
    client.redis.set(client.run_keys.log, "not a stream")
    telemetry = Telemetry(client, "agent", "agent-0")
    assert not telemetry.step()
    assert telemetry.metrics()["telemetry/dropped_lines_total"] > 0
    client.redis.delete(client.run_keys.log)
    assert telemetry.step()


def test_bad_arguments_are_refused(client: RedisClient) -> None:
    with pytest.raises(ValueError, match="interval_s is 0"):
        Telemetry(client, "agent", "agent-0", interval_s=0)
    telemetry = Telemetry(client, "agent", "agent-0")
    with pytest.raises(ValueError, match="finite"):
        telemetry.histogram("x", [])
    with pytest.raises(ValueError, match="could not convert"):
        telemetry.scalar("x", "text")  # type: ignore[arg-type]
