"""Redis' users, one for each kind of process: each does its whole work, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import NoPermissionError, ResponseError

from surreal.config import load_config
from surreal.distributed import EmbeddedRedis, RedisClient
from surreal.distributed.connection.keys import RUNS
from surreal.distributed.connection.rights import ADMINISTRATOR, USERS
from surreal.distributed.server.access import SELECTORS_VERSION, ServerAccess, user_name, write_users
from surreal.distributed.server.files import server_version
from surreal.run.process import registry
from surreal.run.process.registry import Registrant
from tests.parts_of_a_run import PartsOfARun
from tests.recorder import Recorder


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


def test_what_a_user_may_not_register_is_left_to_the_learner(redis: GuardedRedis) -> None:
    config, evaluation = load_config("cartpole-dqn"), Registrant("eval", leads=False)
    client, learner = redis.connect("evaluation"), redis.connect("learner")
    if not redis.tells_keys_apart:  # elsewhere it waits for the learner
        registry.register(client, config, evaluation)
    registry.register(learner, config, Registrant("learner", leads=True))
    registry.compare(client, config, evaluation)
    administrator = redis.connect(ADMINISTRATOR)
    assert [entry.run for entry in registry.list_runs(administrator)] == ["mine"]
    administrator.delete_run()
    registry.compare(client, config, evaluation)  # Redis was emptied, and the learner is not back yet
    assert registry.list_runs(administrator) == []


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
        ("XREAD", "STREAMS", shard.stream, "0"),
        ("PUBLISH", policy.notice, "7"),
    ]
    by_key = [
        ("DEL", shard.stream),
        ("GET", shard.block("x")),
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


#: Rights beside those of scripts that no part of a run needs while nothing goes wrong, and what they are for.
RARE = {
    "cluster|slots": "in a Redis Cluster",
    "command": "in a Redis Cluster",
    "ping": "a connection that was idle for 15 s",
    "info": "the version of the server; its memory",
    "scan": "a run whose configuration changes, or that is removed",
    "unlink": "the same",
    "exists claim:*": "whether who registered a configuration that differs is alive",
    "set config": "Redis was emptied",
    "del policy:*:contract": "the model has changed",
    "hdel processes": "a process that ends",
    "hdel surreal:runs": "a run that is removed",
    "multi": "several parameter servers",
    "exec": "several parameter servers",
    "subscribe policy:*:notice": "listeners of `surreal watch`",
    "get policy:*:league": "evaluation of self-play",
    "setex policy:*:part:*": "a learner of more than 128 KiB of parameters",
    "pexpire policy:*:part:*": "a learner of more than 64 MB of parameters",
    "get policy:*:part:*": "a learner that goes on from what was broadcast",
    "xrange stream": "a queue that starts in the middle",
    "rpush policy:*:answer:*": "a parameter server that is called as a learner is",
    "pexpire policy:*:answer:*": "the same",
    "xread policy:*:calls": "the same",
    "xdel policy:*:calls": "the same",
    "xread log": "whoever of launcher, learner and parameter server collects",
    "xrevrange log": "the same",
    "xtrim log": "the same",
    "xread scores": "the same",
    "xrevrange scores": "the same",
    "hmget best": "the same",
    "xadd log": "whoever of them has something to tell",
    "hset processes": "the same",
    "hgetall surreal:runs": "`surreal stop` finds its run",
    "hget policy:*:params": "`surreal run` shows a version",
    "hget best": "`surreal run` shows the best return of an evaluation elsewhere",
    "hgetall meta": "`surreal replay info`; FIFO replays",
    "xrevrange stream": "`surreal replay info`",
    "get lease": "`surreal replay info`",
}


def test_users_have_the_fewest_commands(redis: GuardedRedis, tmp_path: Path) -> None:
    """Of all that a user may do beside its scripts, whose text says what they do, all parts of a run leave nothing."""
    if not redis.tells_keys_apart:
        pytest.skip("Redis 6.2 knows no commands for some keys only")
    run, recorder = PartsOfARun(redis.connect, tmp_path / "run"), Recorder(redis.server.address, tmp_path / "monitor")
    used: dict[str, set[str]] = {user.name: set() for user in USERS}
    for _ in range(2):
        for act in run.acts:
            act.do()
            done = recorder.take()
            for user in act.user.split():
                used[user] |= done
    run.close()
    recorder.close()
    for user in USERS:
        rights = {f"{command} {kind}" for kind, commands in user.keys.items() for command in commands.split()}
        left = (rights | set(user.keyless.split())) - used[user.name]
        assert not {right for right in left if not RARE.keys() & {right, right.partition(" ")[0]}}, user.name
