"""DurableReplay on a real Redis: rows are stored and consumed once, whatever writers and readers do."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from surreal import DurableReplay
from surreal.base.errors import CodecError, ContractError, LeaseError, RedisUnavailableError, ReplayFullError
from surreal.distributed.connection.retry import SpoiledKeyError

Open = Callable[..., DurableReplay]


@pytest.fixture
def open_replay(redis_server: Any) -> Iterator[Open]:
    """Open a replay of this test; all objects have the same rows."""
    name, opened = f"durable-{uuid4().hex[:8]}", []

    def start(**options: Any) -> DurableReplay:
        opened.append(DurableReplay(name, address=redis_server.address, **{"wait_timeout_s": 20.0, **options}))
        return opened[-1]

    yield start
    start()._server.client.delete_run()
    for each in opened:
        each.close()


def numbers(begin: int, end: int) -> dict[str, Any]:
    return {"x": np.arange(begin, end)}


def test_rows_are_consumed_in_order_whatever_their_portions(open_replay: Open) -> None:
    replay, found = open_replay(), []
    for begin in range(0, 100, 10):
        replay.put(numbers(begin, begin + 10))
    for size in (3, 7, 25, 1, 64):
        batch = replay.consume(size)
        assert batch is not None and batch.rows == size
        found += batch["x"].tolist()
        batch.commit()
    assert found == [*range(100)]
    assert replay.consume(1, timeout_s=0.0) is None
    assert replay.counts() == {"rows": 0, "put": 100, "consumed": 100, "stale": 0}


def test_a_writer_that_repeats_itself_stores_its_rows_once(open_replay: Open) -> None:
    replay = open_replay()
    assert replay.last_step("w") is None
    assert replay.put(numbers(0, 5), writer="w", step=1)
    again = open_replay()
    assert again.last_step("w") == 1
    assert not again.put(numbers(0, 5), writer="w", step=1)
    assert again.put(numbers(5, 6), writer="w", step=2) and again.put(numbers(0, 5), writer="other", step=1)
    assert len(again) == 11
    with pytest.raises(ValueError, match="belong together"):
        again.put(numbers(0, 1), writer="w")


def test_a_reader_that_ended_before_its_commit_gets_its_rows_again_and_no_others(open_replay: Open) -> None:
    writer = open_replay()
    for begin in range(0, 40, 10):
        writer.put(numbers(begin, begin + 10))
    first = open_replay(reader="a")
    done = first.consume(15)
    assert done is not None
    done.commit(b"15 rows")
    assert first.consume(10) is not None  # never committed
    second = open_replay(reader="a")
    assert second.state() == b"15 rows"
    batch = second.consume(25)
    assert batch is not None and batch["x"].tolist() == [*range(15, 40)]
    batch.commit(b"40 rows")
    batch.commit(b"again")  # changes nothing
    assert second.state() == b"40 rows" and len(second) == 0


def test_rows_of_a_reader_that_is_gone_go_to_another_after_the_lease(open_replay: Open) -> None:
    open_replay().put(numbers(0, 10))
    gone, other = open_replay(reader="gone"), open_replay(reader="other", lease_s=0.05)
    lost = gone.consume(10)
    batch = other.consume(10)
    assert lost is not None and batch is not None and batch["x"].tolist() == [*range(10)]
    with pytest.raises(LeaseError, match="nothing was committed"):
        lost.commit(b"wrong")
    assert gone.state() is None
    batch.commit()
    assert other.counts()["consumed"] == 10


def test_batches_are_committed_in_their_order(open_replay: Open) -> None:
    replay = open_replay()
    replay.put(numbers(0, 10))
    one, two = replay.consume(3), replay.consume(3)
    assert one is not None and two is not None
    with pytest.raises(ContractError, match="order"):
        two.commit()
    one.commit()
    two.commit()
    assert len(replay) == 4


def test_a_block_commits_its_batch_and_an_exception_gives_the_rows_back(open_replay: Open) -> None:
    replay = open_replay()
    replay.put(numbers(0, 10))
    replay.put(numbers(10, 20))
    with replay.consume(4) as batch:
        assert batch["x"].tolist() == [0, 1, 2, 3]
    assert batch.is_committed and len(replay) == 16
    with pytest.raises(RuntimeError, match="no gradient"), replay.consume(8) as failed:
        raise RuntimeError("no gradient")
    assert len(replay) == 16 and not failed.is_committed
    with pytest.raises(ContractError, match="given back"):
        failed.commit()
    with replay.consume(16) as batch:
        assert batch["x"].tolist() == [*range(4, 20)]
        batch.commit(b"checkpoint-1")  # with a state; the end of the block changes nothing
    assert replay.state() == b"checkpoint-1" and len(replay) == 0


def test_a_batch_is_released_with_those_after_it_and_not_those_before(open_replay: Open) -> None:
    replay = open_replay()
    for begin in range(0, 30, 10):
        replay.put(numbers(begin, begin + 10))
    first, second, third = (replay.consume(7) for _ in range(3))
    second.release()
    second.release()  # changes nothing
    again = replay.consume(23)
    assert again["x"].tolist() == [*range(7, 30)]
    with pytest.raises(ContractError, match="given back"):
        third.commit()
    first.commit()
    first.release()  # it stays committed
    again.commit()
    assert replay.counts() == {"rows": 0, "put": 30, "consumed": 30, "stale": 0}


def test_several_writers_and_readers_share_all_rows(open_replay: Open) -> None:
    count, seen, lock = 30, Counter[int](), threading.Lock()

    def write(number: int) -> None:
        replay = open_replay()
        for i in range(count):
            replay.put(numbers(1000 * number + 7 * i, 1000 * number + 7 * (i + 1)))

    def read(number: int) -> None:
        replay = open_replay(reader=f"r{number}")
        while (batch := replay.consume(5, timeout_s=1.0)) is not None:
            with lock:
                seen.update(batch["x"].tolist())
            batch.commit()

    threads = [threading.Thread(target=act, args=(i,)) for i in range(2) for act in (write, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    replay = open_replay(reader="r0")
    while (batch := replay.consume(1, timeout_s=0.0)) is not None:  # fewer than a batch are left to a reader
        seen.update(batch["x"].tolist())
        batch.commit()
    replay = open_replay(reader="r1")
    while (batch := replay.consume(1, timeout_s=0.0)) is not None:
        seen.update(batch["x"].tolist())
        batch.commit()
    assert seen == Counter(1000 * number + i for number in range(2) for i in range(7 * count))


def test_old_versions_are_passed_over_counted_and_removed(open_replay: Open) -> None:
    replay = open_replay()
    for version in range(5):
        replay.put(numbers(10 * version, 10 * version + 10), version=version)
    batch = replay.consume(15, min_version=2)
    assert batch is not None and batch["x"].tolist() == [*range(20, 35)] and batch.version == 2
    batch.commit()
    assert replay.counts() == {"rows": 15, "put": 50, "consumed": 15, "stale": 20}
    assert set(replay.sample(200, min_version=4)["x"]) <= {*range(40, 50)}
    with pytest.raises(ValueError, match="version 9"):
        replay.sample(1, min_version=9)


def test_rows_that_are_too_old_make_room_for_a_writer_that_waits(open_replay: Open) -> None:
    reader, writer = open_replay(), open_replay(capacity=10)
    writer.put(numbers(0, 10), version=0)
    thread = threading.Thread(target=lambda: writer.put(numbers(10, 20), version=1))
    thread.start()
    batch = reader.consume(10, min_version=1, timeout_s=20.0)
    thread.join()
    assert batch is not None and batch["x"].tolist() == [*range(10, 20)]


def test_a_full_replay_waits_or_evicts(open_replay: Open) -> None:
    waiting = open_replay(capacity=20, wait_timeout_s=0.05)
    waiting.put(numbers(0, 20))
    with pytest.raises(ReplayFullError, match="holds 20 rows"):
        waiting.put(numbers(20, 21))
    evicting = open_replay(capacity=20, when_full="evict", seed=0)
    evicting.put(numbers(20, 30))
    assert len(evicting) == 10
    assert set(evicting.sample(500)["x"]) == {*range(20, 30)}
    with pytest.raises(ValueError, match="more than the capacity"):
        evicting.put(numbers(0, 21))


def test_rows_that_are_evicted_while_a_reader_has_them_are_counted_once(open_replay: Open) -> None:
    replay = open_replay(capacity=20, when_full="evict")
    replay.put(numbers(0, 20))
    batch = replay.consume(5)
    replay.put(numbers(20, 40))
    assert batch is not None
    batch.commit()
    assert len(replay) == 20
    rest = [replay.consume(5) for _ in range(7)]
    for each in rest:
        assert each is not None
        each.commit()
    assert len(replay) == 0


def test_a_reader_keeps_its_lease_when_the_rest_of_an_entry_is_evicted(open_replay: Open) -> None:
    replay = open_replay(capacity=20, when_full="evict")
    replay.put(numbers(0, 20))
    first, second = replay.consume(5), replay.consume(5)
    assert first is not None and second is not None
    first.commit()
    replay.put(numbers(20, 40))
    second.commit()
    assert replay.counts() == {"rows": 20, "put": 40, "consumed": 10, "stale": 0}


def test_commits_renew_the_lease_of_the_rows_that_a_reader_still_has(open_replay: Open) -> None:
    replay = open_replay()
    for begin in range(0, 30, 10):
        replay.put(numbers(begin, begin + 10))
    batch = replay.consume(10)
    assert batch is not None

    def idle_ms() -> dict[bytes, int]:
        found = replay._server.client.redis.xpending_range(replay._server.stream, "readers", "-", "+", 10)
        return {each["message_id"]: each["time_since_delivered"] for each in found}

    deadline_s = time.monotonic() + 60
    while min((before := idle_ms()).values()) < 500:
        assert time.monotonic() < deadline_s
    batch.commit()
    after = idle_ms()
    assert len(before) == 3 and len(after) == 2 and all(after[entry] < before[entry] for entry in after)


def test_readers_that_begin_together_make_one_group(open_replay: Open) -> None:
    for _ in range(20):
        readers = [open_replay(reader=f"r{i}") for i in range(4)]
        readers[0]._server.client.delete_run()
        barrier, failed = threading.Barrier(4), []

        def read(replay: DurableReplay, barrier: threading.Barrier = barrier, failed: list[str] = failed) -> None:
            barrier.wait()
            try:
                replay.consume(1, timeout_s=0.0)
            except Exception as error:
                failed.append(repr(error))

        threads = [threading.Thread(target=read, args=(replay,)) for replay in readers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []


def test_readers_make_room_in_a_redis_without_memory(start_redis: Callable[..., Any]) -> None:
    server = start_redis(maxmemory="6mb")
    with DurableReplay("full", address=server.address, wait_timeout_s=0.2) as replay:
        put = 0
        with pytest.raises(ReplayFullError, match="no memory left"):
            while True:
                replay.put(numbers(put, put + 100))
                put += 100
        last = 0
        while (batch := replay.consume(70, timeout_s=0.5)) is not None:
            assert batch["x"].tolist() == [*range(last, last + 70)]
            batch.commit(b"%d" % last)
            last += 70
        assert last == put // 70 * 70 > 1000
        assert replay.put(numbers(0, 100))


def test_samples_are_uniform_and_follow_what_is_put_and_consumed(open_replay: Open) -> None:
    replay = open_replay(seed=0)
    with pytest.raises(ValueError, match="holds no rows"):
        replay.sample(1)
    replay._looked_s = -1.0
    for begin in range(0, 100, 20):
        replay.put(numbers(begin, begin + 20))
    counts = np.bincount(replay.sample(100_000)["x"], minlength=100)
    assert len(counts) == 100 and abs(counts - 1000).max() < 200
    batch = replay.consume(60)
    assert batch is not None
    batch.commit()
    replay._looked_s = -1.0
    assert set(replay.sample(2000)["x"]) == {*range(60, 100)}


def test_sequences_keep_their_lengths(open_replay: Open) -> None:
    replay = open_replay()
    replay.put({"tokens": [[1], [2, 3]], "reward": [0.0, 1.0]})
    replay.put({"tokens": [[4, 5, 6]], "reward": [2.0]})
    batch = replay.consume(3)
    assert batch is not None
    assert [part.tolist() for part in batch["tokens"]] == [[1], [2, 3], [4, 5, 6]]
    assert batch["reward"].tolist() == [0.0, 1.0, 2.0] and [*batch] == ["tokens", "reward"]


def test_rows_with_other_columns_are_refused(open_replay: Open) -> None:
    replay = open_replay()
    replay.put({"x": np.arange(2), "tokens": [[1], [2, 3]]})
    assert replay.put({"x": np.arange(3), "tokens": [np.arange(i) for i in range(3)]})
    for rows in ({"x": np.arange(2)}, {"x": np.arange(2.0), "tokens": [[1], [2]]}, {"x": [1], "tokens": [1]}):
        with pytest.raises(ContractError, match=r"holds rows with x: int64\[\], tokens: int64\[\*\]; these have x: "):
            replay.put(rows)
    assert len(replay) == 5


def test_damaged_rows_are_refused(open_replay: Open) -> None:
    replay = open_replay()
    replay.put(numbers(0, 2))
    (key,) = replay._server.client.scan(f"surreal:{{{replay._server.client.run}}}:durable:rows:*")
    replay._server.client.execute("SET", key, b"not rows")
    with pytest.raises(CodecError, match="damaged"):
        replay.consume(2)
    with pytest.raises(CodecError, match="damaged"):
        open_replay().sample(1)


@pytest.mark.parametrize("key", ["durable_stream", "durable_meta"])
def test_a_key_that_another_program_has_overwritten_is_reported(open_replay: Open, key: str) -> None:
    replay = open_replay()
    replay.put(numbers(0, 2))
    replay._server.client.execute("SET", getattr(replay._server.client.run_keys, key), "text")
    with pytest.raises(SpoiledKeyError, match="another client writes there"):
        replay.put(numbers(2, 4))
    with pytest.raises(SpoiledKeyError, match="another client writes there"):
        replay.consume(1)


def test_the_server_that_it_starts_keeps_acknowledged_rows(tmp_path: Path) -> None:
    with DurableReplay("kept", folder=tmp_path / "data") as replay:
        replay.put(numbers(0, 10))
        assert replay._redis is not None
        replay._redis.kill()
    with DurableReplay("kept", folder=tmp_path / "data") as replay:
        batch = replay.consume(10)
        assert batch is not None and batch["x"].tolist() == [*range(10)]


def test_an_address_that_nobody_answers_and_contradictions_are_reported(tmp_path: Path, free_port: int) -> None:
    with pytest.raises(ValueError, match="with an address"):
        DurableReplay(address="localhost:1", folder=tmp_path)
    with DurableReplay(address=f"127.0.0.1:{free_port}", wait_timeout_s=0.2) as replay:
        with pytest.raises(RedisUnavailableError):
            replay.put(numbers(0, 1))
        with pytest.raises(RedisUnavailableError):
            replay.consume(1)
    with pytest.raises(ValueError, match="capacity"):
        DurableReplay(address="localhost:1", capacity=0)


def test_rows_that_are_taken_over_do_not_double_those_that_a_reader_has(open_replay: Open) -> None:
    gone, reader = open_replay(reader="gone"), open_replay(reader="reader", lease_s=0.05)
    gone.put({"id": [0, 1]})
    gone.consume(2)
    gone.put({"id": [2, 3, 4, 5]})
    server, deadline_s = gone._server, time.monotonic() + 20.0
    while not server.client.redis.xpending_range(server.stream, "readers", "-", "+", 1, idle=60):
        assert time.monotonic() < deadline_s
    reader.consume(2).commit()
    # It still has two rows, and takes over two older ones while it waits for a fifth, which does not exist.
    assert reader.consume(5, timeout_s=1.0) is None
    assert sorted(reader.consume(4)["id"].tolist()) == [0, 1, 4, 5]
