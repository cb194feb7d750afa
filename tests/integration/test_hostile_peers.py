"""A peer of the same run that writes garbage, one kind of key at a time: nobody who reads it crashes.

Kinds of keys are those of `keys.py`, and who reads them is found out by watching a run, so a new key is in this test.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import RedisError

from surreal.base.errors import SurrealError
from surreal.distributed import RedisClient
from surreal.distributed.connection.keys import RUN_KINDS, SHARD_KINDS, kind_pattern
from surreal.distributed.connection.rights import CHANNELS
from surreal.run.process.ending import is_expected
from tests.parts_of_a_run import Act, PartsOfARun
from tests.recorder import Recorder

NOISE = bytes(range(256)) * 3
#: What stands where a number, a name, or bytes are expected.
VALUES = [b"", b"-1", b"99999999999999999999999999", b"nan", NOISE, b"[" * 5000, b'{"a": NaN}']


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


class HostileRun:
    """A run whose keys somebody else writes as well.

    Attributes:
        readers: kind of key -> what is done with keys of it, as a server saw it.
    """

    def __init__(self, client: RedisClient, folder: Path) -> None:
        self.client = client

        def connect(_user: str) -> RedisClient:
            return RedisClient(client.address, run=client.run, retry_timeout_s=0.1, timeout_s=5.0)

        self.parts = PartsOfARun(connect, folder)
        self.readers: dict[str, list[Act]] = {}
        recorder = Recorder(client.address, folder / "monitor")
        for _ in range(2):
            for act in self.parts.acts:
                act.do()
                for kind in {each.partition(" ")[2] for each in recorder.take()}:
                    if act not in self.readers.setdefault(kind, []):
                        self.readers[kind].append(act)
        recorder.close()
        self.parts.lose_patience(0.2)  # what is spoiled need not be waited for

    def keys_of(self, kind: str) -> list[bytes]:
        return list(self.client.scan(kind_pattern(kind, self.client.run)))

    def attack(self, kind: str, spoil_key: Callable[[Redis, bytes], None]) -> list[str]:
        """Spoil the keys of a kind; returns which acts met an error that nobody of ours explains."""
        for key in self.keys_of(kind):
            spoil_key(self.client.redis, key)
        problems = []
        for act in self.readers.get(kind, []):
            try:
                act.do()
            except Exception as error:  # of any kind: that is the question
                if not is_expected(error):
                    problems.append(f"{act.user} {act.name}: {error!r}"[:300])
        return problems

    def mend(self, kind: str) -> None:
        """Remove what was spoiled, and let the run go on."""
        for key in self.keys_of(kind):
            self.client.redis.delete(key)
        for act in self.readers.get(kind, []):
            with suppress(SurrealError, RedisError):
                act.do()


#: Keys that no process of a run reads: what `surreal chaos` fills Redis with, and those of DurableReplay.
NEVER_READ = {"ballast:*", *(kind for kind in RUN_KINDS if kind.startswith("durable:"))}


@pytest.fixture(scope="module")
def run(redis_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileRun]:
    with RedisClient(redis_server.address, run=f"test-{uuid.uuid4().hex[:12]}") as client:
        hostile = HostileRun(client, tmp_path_factory.mktemp("run"))
        yield hostile
        hostile.parts.close()
        client.delete_run()


@pytest.mark.parametrize("kind", [kind for kind in (*SHARD_KINDS, *RUN_KINDS) if kind not in {*CHANNELS, *NEVER_READ}])
def test_garbage_in_a_key_crashes_nobody(run: HostileRun, kind: str) -> None:
    assert run.readers.get(kind), f"nobody uses {kind} in tests/parts_of_a_run.py"
    problems = []
    for name, spoil_key in GARBAGE.items():
        problems += [f"{name}: {problem}" for problem in run.attack(kind, spoil_key)]
        run.mend(kind)
    if problems:
        pytest.fail("\n".join(problems))


def test_forged_notices_cost_a_look_and_nothing_else(run: HostileRun) -> None:
    listener = run.parts.listener
    for value in VALUES:
        run.client.redis.publish(run.client.policy_keys().notice, value)
        listener.step()
    listener.check()
