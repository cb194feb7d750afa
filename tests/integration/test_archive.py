"""Replays in files: what was exported is imported again, exactly and once, or refused."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from surreal.base.errors import (
    CodecError,
    ConfigError,
    ContractError,
    ReplayFullError,
    StoppedError,
    SurrealError,
)
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience import codec, single_steps
from surreal.distributed.experience.codec import Chunk
from surreal.distributed.experience.pointer_queue import PointerQueue
from surreal.distributed.experience.sender import ExpSender
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.experience.stream import Stream
from surreal.replay import UniformReplay
from surreal.replay.archive import ReplayArchive, export_replay, exporting, import_replay

STEPS = 240


@pytest.fixture
def make_client(redis_server: Any, run_id: str) -> Iterator[Callable[..., RedisClient]]:
    """Clients of runs on the session's server; the runs are deleted at the end."""
    clients: list[RedisClient] = []

    def make(name: str = "a", address: str | None = None) -> RedisClient:
        clients.append(RedisClient(address or redis_server.address, run=f"{run_id}-{name}"))
        return clients[-1]

    yield make
    for client in clients:
        if client.ping():
            client.delete_run()
        client.close()


def fill(client: RedisClient, *, steps: int = STEPS, is_dict: bool = False, seed: int = 0, **options: Any) -> None:
    """Send random episodes whose every number is another one."""
    rng = np.random.default_rng(seed)
    sender = ExpSender(client, **({"chunk_steps": 16, "max_delay_s": 60.0, "lookahead": 2} | options))
    stack = options.get("frame_stack", 1)
    frames: list[Any] = []
    for i in range(steps):
        frames = frames or [_frame(rng, is_dict)] * stack
        following = [*frames[1:], _frame(rng, is_dict)] if stack > 1 else [_frame(rng, is_dict)]
        obs, new_obs = (np.stack(f) if stack > 1 else f[0] for f in (frames, following))
        done, truncated = rng.random() < 0.1, bool(rng.random() < 0.5)
        extras = {"logp": rng.normal(size=2).astype(np.float32), "mask": rng.random(3) < 0.5}
        sender.send(
            [obs, new_obs],
            int(rng.integers(4)),
            float(rng.normal()),
            done,
            truncated=truncated,
            extras=extras,
            version=i,
        )
        frames = [] if done else following
    assert sender.close()


def _frame(rng: np.random.Generator, is_dict: bool) -> Any:
    if not is_dict:
        return rng.normal(size=(2, 3)).astype(np.float32)
    flags = (rng.random(3) < 0.5, rng.normal(size=()).astype(np.float64))
    return {"pixels": rng.integers(0, 255, (4, 4)).astype(np.uint8), "pose": flags, "nothing": np.zeros((0,), np.int16)}


def chunks_in(client: RedisClient) -> list[Chunk]:
    """Everything in a run's stream."""
    queue, found = PointerQueue(Stream(client)), []
    while True:
        number = queue.enqueue_step()
        for _ in range(number):
            chunk = queue.dequeue()
            assert chunk is not None
            found.append(chunk)
        if queue.has_caught_up.is_set():
            assert queue.refused_chunks == queue.gone_chunks == 0
            return found


def assert_same_chunks(got: list[Chunk], expected: list[Chunk]) -> None:
    assert len(got) == len(expected)
    for chunk, other in zip(got, expected, strict=True):
        np.testing.assert_array_equal(chunk.segments, other.segments)
        assert chunk.own_steps == other.own_steps
        assert chunk.columns.keys() == other.columns.keys()
        assert chunk.extras.keys() == other.extras.keys()
        for values, others in (
            *((chunk.columns[name], other.columns[name]) for name in chunk.columns),
            *((chunk.extras[name], other.extras[name]) for name in chunk.extras),
            *zip(chunk.leaves, other.leaves, strict=True),
        ):
            assert values.dtype == others.dtype
            np.testing.assert_array_equal(values, others)


@pytest.fixture
def archive(make_client: Callable[..., RedisClient], tmp_path: Path) -> Path:
    """A small archive in several files."""
    client = make_client("origin")
    fill(client)
    export_replay(client, tmp_path / "archive", file_bytes=4 << 10)
    return tmp_path / "archive"


@pytest.mark.parametrize("file_format", ["arrow", "parquet"])
@pytest.mark.parametrize(
    "options", [{}, {"is_dict": True}, {"frame_stack": 3, "compression": "zstd"}], ids=["array", "dict", "stack"]
)
def test_every_column_and_observation_comes_back(
    make_client: Callable[..., RedisClient], tmp_path: Path, options: dict[str, Any], file_format: str
) -> None:
    origin, target = make_client("a"), make_client("b")
    for seed in range(2):  # two senders
        fill(origin, seed=seed, **options)
    manifest = export_replay(origin, tmp_path / "archive", file_format=file_format, file_bytes=8 << 10)
    assert (manifest.steps, manifest.run, len(manifest.senders)) == (2 * STEPS, origin.run, 2)
    assert len(manifest.files) > 1
    result = import_replay(target, tmp_path / "archive")
    assert (result.chunks, result.steps, result.known_chunks) == (manifest.chunks, 2 * STEPS, 0)
    before, after = chunks_in(origin), chunks_in(target)
    assert_same_chunks(after, before)
    assert [c.chunk_id.split("-")[1] for c in after] == [c.chunk_id.split("-")[1] for c in before]
    assert Stream(target).contract() == Stream(origin).contract()


def test_steps_can_be_read_with_pyarrow_and_pandas_alone(
    make_client: Callable[..., RedisClient], tmp_path: Path
) -> None:
    client = make_client()
    fill(client)
    for file_format in ("arrow", "parquet"):
        export_replay(client, tmp_path / file_format, file_format=file_format)
    first = pa.ipc.open_file(tmp_path / "arrow" / "steps-00000.arrow").read_all()
    second = pq.read_table(tmp_path / "parquet" / "steps-00000.parquet")
    assert first.equals(second)
    rows = first.to_pydict()
    own = [i for i, kind in enumerate(rows["kind"]) if kind == "step"]
    assert [rows["version"][i] for i in own] == list(range(STEPS))
    assert json.loads(first.schema.field("obs").metadata[b"shape"]) == [2, 3]
    assert first.schema.field("terminated").type == pa.bool_()
    for i, following in pairwise(own):
        if not rows["terminated"][i] and not rows["truncated"][i]:  # the row below is what the step led to
            assert rows["obs"][i + 1] == rows["obs"][following]


def test_a_repeated_import_stores_nothing_twice(archive: Path, make_client: Callable[..., RedisClient]) -> None:
    target = make_client("b")
    first = import_replay(target, archive)
    second = import_replay(target, archive)
    assert (second.chunks, second.known_chunks) == (0, first.chunks)
    assert len(chunks_in(target)) == first.chunks
    assert int(target.redis.hget(target.shard_keys().meta, "steps")) == STEPS


@pytest.mark.parametrize(("first", "second"), [(1, 3), (3, 1)])
def test_an_import_into_another_number_of_shards_is_refused(
    archive: Path, make_client: Callable[..., RedisClient], first: int, second: int
) -> None:
    """Its chunks would be stored again, in streams that nobody of the run reads."""
    client = make_client("b")
    import_replay(ReplayShards(client, first), archive)
    before = client.redis.dbsize()
    with pytest.raises(ConfigError, match=f"none of {second} shards"):
        import_replay(ReplayShards(client, second), archive)
    assert client.redis.dbsize() == before
    assert import_replay(ReplayShards(client, first), archive).chunks == 0


@pytest.mark.parametrize("is_forgotten", [False, True], ids=["soon", "after-an-hour"])
def test_an_interrupted_import_goes_on_where_it_was(
    archive: Path, make_client: Callable[..., RedisClient], monkeypatch: pytest.MonkeyPatch, is_forgotten: bool
) -> None:
    target, stop = make_client("b"), threading.Event()
    append, left = Stream.append, [5]

    def counting(self: Stream, *args: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            stop.set()
        return append(self, *args)

    monkeypatch.setattr(Stream, "append", counting)
    with pytest.raises(StoppedError, match="repeat it to continue"):
        import_replay(target, archive, stop=stop)
    stored = len(chunks_in(target))
    assert 0 < stored < ReplayArchive(archive).manifest.chunks
    if is_forgotten:  # what Redis does with sequence numbers in time
        keys = list(target.redis.scan_iter(match=target.shard_keys().seq("*").replace("{", "[{]")))
        assert keys
        target.redis.delete(*keys)
    result = import_replay(target, archive)
    assert result.known_chunks == stored
    assert_same_chunks(chunks_in(target), chunks_in(make_client("origin")))


def test_an_import_after_redis_was_emptied_is_whole(
    archive: Path,
    make_client: Callable[..., RedisClient],
    start_redis: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = make_client("b", start_redis().address)
    append, left = Stream.append, [6]

    def emptying(self: Stream, *args: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            target.redis.flushall()
        return append(self, *args)

    monkeypatch.setattr(Stream, "append", emptying)
    with pytest.raises(SurrealError, match="emptied during the import"):
        import_replay(target, archive)
    import_replay(target, archive)
    chunks = chunks_in(target)
    assert len({chunk.chunk_id for chunk in chunks}) == len(chunks) == ReplayArchive(archive).manifest.chunks


def test_an_archive_cut_off_anywhere_is_refused(
    archive: Path, make_client: Callable[..., RedisClient], tmp_path: Path
) -> None:
    target, copy = make_client("b"), tmp_path / "copy"
    names = ["manifest.json", "steps-00000.arrow", "steps-00001.arrow"]
    for name in names:
        size = (archive / name).stat().st_size
        for length in sorted({0, 1, 7, *range(10, size, max(1, size // 12)), size - 1}):
            shutil.copytree(archive, copy)
            os.truncate(copy / name, length)
            with pytest.raises(CodecError, match="not a whole replay archive"):
                import_replay(target, copy)
            shutil.rmtree(copy)
        shutil.copytree(archive, copy)
        (copy / name).unlink()
        with pytest.raises(CodecError, match=name):
            import_replay(target, copy)
        shutil.rmtree(copy)
    assert not target.redis.exists(target.shard_keys().stream, target.shard_keys().meta)


def test_a_changed_byte_anywhere_is_refused(archive: Path, make_client: Callable[..., RedisClient]) -> None:
    target, rng = make_client("b"), np.random.default_rng(1)
    for path in sorted(archive.iterdir()):
        whole = path.read_bytes()
        for position in rng.integers(0, len(whole), 12).tolist():
            changed = bytearray(whole)
            changed[position] ^= 1 << int(rng.integers(8))
            path.write_bytes(changed)
            try:
                same = json.loads(changed) == json.loads(whole) if path.suffix == ".json" else False
            except ValueError:
                same = False
            if not same:  # white space of the manifest may change
                with pytest.raises(CodecError, match="not a whole replay archive"):
                    import_replay(target, archive)
        path.write_bytes(whole)
    assert not target.redis.exists(target.shard_keys().stream)
    import_replay(target, archive)


@pytest.mark.parametrize("bad", [np.nan, -np.inf, 3e38, 1e300])
def test_an_archive_with_an_impossible_number_is_refused(
    make_client: Callable[..., RedisClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: float
) -> None:
    origin = make_client("origin")
    sender = ExpSender(origin, chunk_steps=16, max_delay_s=60.0)
    with monkeypatch.context() as somebody_elses:
        somebody_elses.setattr(codec, "_describe_unsound", lambda *_: "")
        somebody_elses.setattr(single_steps, "is_sound", lambda _: True)
        for number in range(40):
            obs = np.array([0.0, bad if number == 30 else 0.0])
            sender.send([obs, np.zeros(2)], 0, 1.0, True)
        assert sender.close()
        export_replay(origin, tmp_path / "archive")
    target = make_client("b")
    with pytest.raises(
        CodecError, match=r"steps-00000.arrow: row 60 cannot be learned from: obs is .*; numbers must be"
    ):
        import_replay(target, tmp_path / "archive")
    assert not target.redis.exists(target.shard_keys().stream)  # nor are the chunks before it there


def test_something_else_is_refused_with_its_name(make_client: Callable[..., RedisClient], tmp_path: Path) -> None:
    target = make_client()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "manifest.json").write_text('{"format": "tar"}')
    for name in ("missing", "foreign"):
        with pytest.raises(CodecError, match=name):
            import_replay(target, tmp_path / name)


def test_a_stream_of_another_kind_is_refused_before_the_first_append(
    archive: Path, make_client: Callable[..., RedisClient]
) -> None:
    target = make_client("b")
    fill(target, steps=20, lookahead=0)
    before = chunks_in(target)
    with pytest.raises(ContractError, match="lookahead"):
        import_replay(target, archive)
    assert_same_chunks(chunks_in(target), before)


def test_an_archive_too_large_for_redis_is_refused_at_once(
    archive: Path, make_client: Callable[..., RedisClient], start_redis: Callable[..., Any]
) -> None:
    client = make_client("b", start_redis().address)
    stream = Stream(client)
    state = stream.tick("owner", lease_ms=0, max_bytes=10_000)
    assert state.is_owner
    with pytest.raises(ReplayFullError, match="has room for 10000"):
        import_replay(client, archive)
    assert not client.redis.exists(stream.keys.stream)
    stream.tick("owner", lease_ms=60_000, max_bytes=10_000)  # an owner might evict, but this one does not
    with pytest.raises(ReplayFullError, match="repeat the import to continue"):
        import_replay(client, archive, timeout_s=0.1)


def test_export_goes_on_while_an_owner_evicts(
    make_client: Callable[..., RedisClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client()
    fill(client, steps=640)
    everything = chunks_in(client)
    replay = UniformReplay(client, batch_size=4, capacity=320, start_size=1)
    monkeypatch.setattr(exporting, "_follow", _evicting(replay))
    manifest = export_replay(client, tmp_path / "archive")
    replay.stop()
    replay.join()
    assert manifest.evicted_chunks > 0
    assert manifest.chunks + manifest.evicted_chunks == len(everything)
    kept = make_client("b")
    import_replay(kept, tmp_path / "archive")
    names = [chunk.chunk_id.split("-")[1] for chunk in chunks_in(kept)]
    assert_same_chunks(chunks_in(kept), [chunk for chunk in everything if chunk.chunk_id.split("-")[1] in names])


def _evicting(replay: UniformReplay) -> Any:
    follow = exporting._follow

    def following(*args: Any) -> Iterator[Chunk]:
        for number, chunk in enumerate(follow(*args)):
            yield chunk
            if number == 2:  # the next ones were read already; of those after them, the owner removes some
                while replay.metrics()["replay/inserted_steps_total"] < 640 or replay.owner.num_pending:
                    replay.pointer_queue.enqueue_step()
                    replay.step(timeout_s=0.001)

    return following


def test_an_export_that_fails_leaves_nothing(
    archive: Path, make_client: Callable[..., RedisClient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = make_client("origin")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with pytest.raises(ConfigError, match="exists already"):
        export_replay(origin, archive)
    with pytest.raises(SurrealError, match="empty"):
        export_replay(make_client("nobody"), tmp_path / "other")
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        export_replay(origin, tmp_path / "other", stop=stop)

    def no_disk(*_: Any, **__: Any) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("surreal.replay.archive.files.sync", no_disk)
    with pytest.raises(OSError, match="No space"):
        export_replay(origin, tmp_path / "other")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}.keys() == before.keys()
