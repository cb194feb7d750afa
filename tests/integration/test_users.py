"""Redis' users, one for each kind of process: each does its whole work, and nothing else."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from fnmatch import translate
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import NoPermissionError, ResponseError

from surreal.distributed import EmbeddedRedis, RedisClient
from surreal.distributed.connection.access.rights import ADMINISTRATOR, USERS
from surreal.distributed.connection.keys import RUN_KINDS, RUNS, SHARD_KINDS, kind_pattern
from surreal.distributed.server.access import ServerAccess
from surreal.distributed.server.acl import SELECTORS_VERSION, user_name, write_users
from surreal.distributed.server.files import server_version
from tests.parts_of_a_run import PartsOfARun


class GuardedRedis:
    """A server with users for run `mine` alone."""

    def __init__(self, binary: str, folder: Path) -> None:
        self.version = server_version(Path(binary))
        self._secrets = folder / "secrets"
        acl_file = folder / "users.acl"
        write_users(acl_file, self._secrets, ["mine"], self.version)
        access = ServerAccess(self.password(ADMINISTRATOR), ADMINISTRATOR, acl_file)
        self.server = EmbeddedRedis(maxmemory_bytes=64 << 20, program=binary, access=access)
        self._clients: list[RedisClient] = []

    @property
    def tells_keys_apart(self) -> bool:
        """Whether a user has each command for some of its keys only."""
        return self.version >= SELECTORS_VERSION

    def password(self, name: str) -> str:
        return (self._secrets / name).read_text().strip()

    def connect(self, user: str, run: str = "mine") -> RedisClient:
        name = user_name(user, "mine")
        address = self.server.address.partition("?")[0]
        client = RedisClient(address, run=run, username=name, password=self.password(name), retry_timeout_s=0.5)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.server.stop()


@pytest.fixture
def redis(redis_binary: str, tmp_path: Path) -> Iterator[GuardedRedis]:
    guarded = GuardedRedis(redis_binary, tmp_path)
    guarded.server.start()
    yield guarded
    guarded.close()


def refusals(redis: GuardedRedis) -> list[str]:
    """What users asked for in vain."""
    log: Any = redis.connect(ADMINISTRATOR).redis.acl_log()
    return sorted({f"{entry['username']}: {entry['reason']} {entry['object']}" for entry in log})


def test_every_user_does_its_whole_work(redis: GuardedRedis, tmp_path: Path) -> None:
    run = PartsOfARun(redis.connect, tmp_path / "run")
    for _ in range(3):
        for act in run.acts:
            act.do()
    metrics = run.replay.metrics()
    run.close()
    redis.connect("launcher").delete_run()
    assert not refusals(redis)
    assert metrics["replay/inserted_steps_total"] > 0
    assert run.shared_listener.version > 0
    assert run.listener.version > 0
    assert not list(redis.connect(ADMINISTRATOR).scan("surreal:{mine*"))


FOREIGN = [
    ("GET", "surreal:{other}:config"),
    ("HGETALL", "surreal:{other}:processes"),
    ("GET", "surreal:{mine2}:config"),
    ("SUBSCRIBE", "surreal:{other}:policy:default:notice"),
    ("GET", "something"),
]
SERVER = [
    ("CONFIG", "GET", "requirepass"),
    ("CONFIG", "SET", "maxmemory", "1"),
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("SHUTDOWN", "NOSAVE"),
    ("KEYS", "*"),
    ("ACL", "LIST"),
    ("ACL", "SETUSER", "x"),
    ("DEBUG", "SLEEP", "0"),
    ("MONITOR",),
    ("CLIENT", "LIST"),
    ("CLIENT", "KILL", "ID", "1"),
    ("SCRIPT", "FLUSH"),
    ("REPLICAOF", "127.0.0.1", "1"),
    ("SAVE",),
    ("MODULE", "LIST"),
    ("SWAPDB", "0", "1"),
]


def refused(client: RedisClient, command: tuple[Any, ...]) -> bool:
    try:
        client.execute(*command)
    except NoPermissionError:
        return True
    except ResponseError as error:  # a script of Redis 6.2 wraps it
        return "permissions" in str(error)
    return False


@pytest.mark.parametrize("user", [user.name for user in USERS])
def test_no_user_reaches_another_run_or_the_server(redis: GuardedRedis, user: str) -> None:
    client = redis.connect(user)
    assert [command for command in FOREIGN + SERVER if not refused(client, command)] == []
    assert refused(client, ("EVAL", "return redis.call('GET', KEYS[1])", 1, "surreal:{other}:config"))


def test_an_agent_neither_evicts_nor_publishes(redis: GuardedRedis) -> None:
    agent, learner = redis.connect("agent"), redis.connect("learner")
    shard, policy, run = agent.shard_keys(), agent.policy_keys(), agent.run_keys
    forbidden = [
        ("XDEL", shard.stream, "1-1"),
        ("XTRIM", shard.stream, "MAXLEN", "0"),
        ("DEL", shard.stream),
        ("XREAD", "STREAMS", shard.stream, "0"),
        ("GET", shard.block("x")),
        ("PUBLISH", policy.notice, "7"),
    ]
    by_key = [
        ("UNLINK", shard.block("x")),
        ("SET", shard.lease, "x"),
        ("SET", shard.credit, "1000000"),
        ("HSET", policy.params, "version", "7"),
        ("UNLINK", policy.params),
        ("SET", policy.lease, "x"),
        ("SET", policy.part("x", 0), "x"),
        ("SET", run.config, "{}"),
        ("SET", policy.league, "{}"),
        ("HSET", run.best, "score", "1"),
        ("XADD", run.scores, "*", "a", "b"),
        ("HSETNX", RUNS, "x", "{}"),
    ]
    expected = forbidden + (by_key if redis.tells_keys_apart else [])
    assert [command for command in expected if not refused(agent, command)] == []
    evict = (
        "evict",
        [shard.stream, shard.meta, shard.lease, shard.credit],
        ["t", 1000, "e", "", 1, 1, "", 0, 0, "", "window", 0],
    )
    learner.run_script(*evict)
    with pytest.raises(ResponseError, match="permissions"):
        agent.run_script(*evict)


def test_an_observer_only_reads(redis: GuardedRedis) -> None:
    observer, administrator = redis.connect("observer"), redis.connect(ADMINISTRATOR)
    found: Any = administrator.redis.acl_getuser(user_name("observer", "mine"))
    shown = str(found["commands"]) + str(found.get("selectors", ""))
    allowed = {name for name in re.findall(r"\+([a-z|]+)", shown) if not name.startswith("@")}
    writing = {str(name).lower() for name in administrator.redis.acl_cat("write")}
    assert allowed
    assert not allowed & (writing | {"eval", "evalsha", "publish", "subscribe", "scan"})
    keys = observer.run_keys
    for command in (("SET", keys.stop, "x"), ("HSET", keys.processes, "a", "b"), ("XADD", keys.log, "*", "a", "b")):
        assert refused(observer, command)
    assert refused(observer, ("GET", observer.shard_keys().block("x")))


#: Rights that the parts of a run do not need in a test without failures, and what they are for.
RARE = {
    "cluster|slots": "in a Redis Cluster",
    "command": "in a Redis Cluster",
    "ping": "a connection that was idle for 15 s",
    "scan": "a run whose configuration changes, or ends",
    "unlink": "what others left of a run whose configuration changes, or ends",
    "eval": "the first call of a script after the server's start",
    "del": "a run that is resumed, or whose model changed",
}


def test_users_have_the_fewest_commands(redis: GuardedRedis, tmp_path: Path) -> None:
    """What they may do and did not: for each command and each kind of key, of all that a run does."""
    if not redis.tells_keys_apart:
        pytest.skip("Redis 6.2 knows no commands for some keys only")
    run, recorder = PartsOfARun(redis.connect, tmp_path / "run"), Recorder(redis, tmp_path / "monitor")
    used: dict[str, set[tuple[str, str]]] = {user.name: set() for user in USERS}
    for _ in range(3):
        for act in run.acts:
            act.do()
            used[act.user] |= recorder.take()
    run.close()
    recorder.close()
    unused = {}
    for user in USERS:
        granted = {(command, kind) for command, kinds in user.commands().items() for kind in kinds or {""}}
        unused[user.name] = sorted(right for right in granted - used[user.name] if right[0] not in RARE)
    assert unused == {user.name: [] for user in USERS}


class Recorder:
    """What a server executes, by MONITOR."""

    def __init__(self, redis: GuardedRedis, path: Path) -> None:
        self._client = redis.connect(ADMINISTRATOR)
        self._output = path.open("wb")
        self._read = path.open("rb")
        socket = redis.server.address.partition("?")[0].removeprefix("unix://")
        self._process = subprocess.Popen(
            ["redis-cli", "-s", socket, "--user", ADMINISTRATOR, "--pass", redis.password(ADMINISTRATOR), "MONITOR"],
            stdout=self._output,
            stderr=subprocess.DEVNULL,
        )
        self._marks = 0
        self.take()

    def take(self) -> set[tuple[str, str]]:
        """Commands and kinds of keys since the last call."""
        self._marks += 1
        mark = f"mark-{self._marks}".encode()
        deadline_s, text = time.monotonic() + 20.0, b""
        while mark not in text:
            assert time.monotonic() < deadline_s
            self._client.execute("ECHO", mark)
            time.sleep(0.002)
            text += self._read.read()
        found = set()
        for line in text.splitlines():
            words = [word.decode("latin-1") for word in re.findall(rb'"((?:[^"\\]|\\.)*)"', line)]
            if words and not words[-1].startswith("mark-"):
                kinds = {kind for word in words[1:] for kind in kinds_of(word)}
                found |= {(name_of(words), kind) for kind in kinds or {""}}
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


_PATTERNS = {kind: re.compile(translate(kind_pattern(kind))) for kind in (*SHARD_KINDS, *RUN_KINDS, RUNS)}


def kinds_of(word: str) -> list[str]:
    return [kind for kind, pattern in _PATTERNS.items() if word.startswith("surreal:") and pattern.match(word)]


def name_of(words: list[str]) -> str:
    return "xinfo|stream" if words[0].lower() == "xinfo" else words[0].lower()
