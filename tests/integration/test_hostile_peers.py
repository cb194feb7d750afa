"""A peer of the same run that writes garbage, one kind of key at a time: nobody who reads it crashes.

Kinds of keys are those of `keys.py`, and who reads them is found out by watching a run, so a new key is in this test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from surreal.distributed import RedisClient
from surreal.distributed.connection.keys import RUN_KINDS, SHARD_KINDS, kind_pattern
from surreal.main.process.reports import is_expected
from tests.parts_of_a_run import PartsOfARun
from tests.recorder import Recorder

NOISE = bytes(range(256)) * 3
#: What stands where a number, a name, or bytes are expected.
VALUES = [b"", b"-1", b"99999999999999999999999999", b"nan", b"1e400", NOISE, b"[" * 5000, b'{"a": NaN}', b"\xff" * 9]


def spoil(redis: Redis, key: bytes, value: bytes) -> None:
    """Put a value into all places of a key where one is."""
    kind = redis.type(key)
    if kind == b"hash":
        redis.hset(key, mapping=dict.fromkeys(redis.hkeys(key), value))  # type: ignore[arg-type]
    elif kind == b"stream":
        names: Any = redis.xrevrange(key, count=1)
        fields = dict.fromkeys(names[0][1], value) if names else {b"id": value, b"head": value}
        redis.xadd(key, fields)
    elif kind == b"list":
        redis.rpush(key, value)
    else:
        redis.set(key, value, px=60_000)


def cut(redis: Redis, key: bytes) -> None:
    """Leave half of every value."""
    kind = redis.type(key)
    if kind == b"string":
        value: Any = redis.get(key)
        redis.set(key, value[: len(value) // 2], px=60_000)
    elif kind == b"hash":
        values: Any = redis.hgetall(key)
        redis.hset(key, mapping={field: value[: len(value) // 2] for field, value in values.items()})
    elif kind == b"stream":
        entries: Any = redis.xrevrange(key, count=1)
        for _, fields in entries:
            redis.xadd(key, {field: value[: len(value) // 2] for field, value in fields.items()})


def change_type(redis: Redis, key: bytes) -> None:
    """Make it what nobody expects."""
    is_list = redis.type(key) == b"list"
    redis.delete(key)
    redis.set(key, b"x", px=60_000) if is_list else redis.rpush(key, b"x")


GARBAGE: dict[str, Callable[[Redis, bytes], None]] = {
    "another type": change_type,
    "half": cut,
    **{f"value {i}": lambda redis, key, value=value: spoil(redis, key, value) for i, value in enumerate(VALUES)},  # type: ignore[misc]
}


@pytest.fixture
def client(redis_server: Any, run_id: str) -> Iterator[RedisClient]:
    with RedisClient(redis_server.address, run=run_id) as client:
        yield client
        client.delete_run()


class HostileRun:
    """A run whose parts are made anew after each attack."""

    def __init__(self, client: RedisClient, folder: Path) -> None:
        self.client, self._folder, self._count = client, folder, 0

    def parts(self) -> PartsOfARun:
        self._count += 1

        def connect(_user: str) -> RedisClient:
            address = self.client.address
            return RedisClient(address, run=self.client.run, retry_timeout_s=0.2, timeout_s=2.0)

        return PartsOfARun(connect, self._folder / str(self._count), patience_s=0.2)

    def keys_of(self, kind: str) -> list[bytes]:
        return list(self.client.scan(kind_pattern(kind, self.client.run)))


def test_garbage_in_every_key_crashes_nobody(client: RedisClient, tmp_path: Path) -> None:
    run = HostileRun(client, tmp_path)
    parts, recorder = run.parts(), Recorder(client.address, tmp_path / "monitor")
    touched: dict[str, set[str]] = {}
    for _ in range(2):
        for act in parts.acts:
            act.do()
            touched.setdefault(act.user + act.name, set()).update(each.partition(" ")[2] for each in recorder.take())
    recorder.close()
    problems = []
    for kind in (*SHARD_KINDS, *RUN_KINDS):
        for name, spoil_key in GARBAGE.items():
            for key in run.keys_of(kind):
                spoil_key(client.redis, key)
            for act in parts.acts:
                if kind in touched[act.user + act.name]:
                    try:
                        act.do()
                    except Exception as error:
                        if not is_expected(error):
                            problems.append(f"{kind}, {name}: {act.user} {act.name}: {error!r}"[:300])
            for key in run.keys_of(kind):
                client.redis.delete(key)
    Path("/tmp/w/hostile.txt").write_text("\n".join(problems))
    assert not problems
