"""The rights of a Redis user: tries each command that Surreal needs, on keys of a run that does not exist."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from redis.exceptions import NoPermissionError, RedisError

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.rights import USERS
from surreal.plugins.doctor.frame.finding import Finding, ok
from surreal.plugins.doctor.server.faults import RIGHTS

_Command = tuple[str | bytes | int, ...]


def rights(client: RedisClient) -> Iterator[Finding]:
    """Try all commands; their keys are removed, and would also expire."""
    name = str(client.redis.connection_pool.connection_kwargs.get("username") or "")
    if name.rpartition(".")[2] in {user.name for user in USERS}:
        yield ok(f"user {name} is one of `surreal redis --acl`, with the rights of its role only: none were tried")
        return
    commands = _commands(f"doctor-{secrets.token_hex(6)}")
    lacking: dict[str, None] = {}
    for command in commands:
        try:
            client.execute(*command)
        except NoPermissionError as error:
            lacking[_kind(str(error), str(command[0]))] = None
        except RedisError:  # full, a replica, an older server: other checks report that
            continue
    if not _may_subscribe(client):
        lacking["SUBSCRIBE"] = None
    user = _user(client)
    if lacking:
        who = f"user {user}" if user else "this user"
        remedy = RIGHTS.remedy.replace("NAME", user) if user else ""
        yield RIGHTS.found(f"{who} may not use {', '.join(lacking)}", remedy)
    else:
        yield ok(f"{f'user {user}' if user else 'this user'} may use all {len(commands) + 1} commands that are needed")


def _commands(run: str) -> list[_Command]:
    """Return one call of each command, in a working order, all in one hash slot."""
    keys = RedisClient(run=run).run_keys
    text, table, stream = keys.config, keys.processes, keys.log
    other, queue = keys.best, keys.scores
    return [
        ("PING",),
        ("TIME",),
        ("INFO", "server"),
        ("SCAN", 0, "MATCH", f"{text}*", "COUNT", 1),
        ("SET", text, "1", "EX", 60),
        ("SETEX", text, 60, "1"),
        ("GET", text),
        ("GETRANGE", text, 0, -1),
        ("EXISTS", text),
        ("EXPIRE", text, 60),
        ("PEXPIRE", text, 60_000),
        ("PTTL", text),
        ("RENAME", text, other),
        ("PERSIST", other),
        ("PEXPIRE", other, 60_000),
        ("HSET", table, "a", "1"),
        ("PEXPIRE", table, 60_000),
        ("HSETNX", table, "a", "1"),
        ("HINCRBY", table, "a", 1),
        ("HGET", table, "a"),
        ("HMGET", table, "a"),
        ("HGETALL", table),
        ("HEXISTS", table, "a"),
        ("HLEN", table),
        ("HDEL", table, "a"),
        ("XADD", stream, "1-1", "a", "1"),
        ("PEXPIRE", stream, 60_000),
        ("XLEN", stream),
        ("XRANGE", stream, "-", "+", "COUNT", 1),
        ("XREVRANGE", stream, "+", "-", "COUNT", 1),
        ("XREAD", "COUNT", 1, "STREAMS", stream, "0-0"),
        ("XTRIM", stream, "MAXLEN", 1),
        ("XDEL", stream, "1-1"),
        ("RPUSH", queue, "1"),
        ("PEXPIRE", queue, 60_000),
        ("BLPOP", queue, 1),
        ("PUBLISH", keys.stop, "1"),
        ("EVAL", "return 1", 1, text),
        ("EVALSHA", "0" * 40, 1, text),
        ("DEL", other),
        ("UNLINK", text, table, stream, queue),
    ]


def _may_subscribe(client: RedisClient) -> bool:
    channel = RedisClient(run="doctor").policy_keys().notice
    with client.redis.pubsub() as pubsub:  # type: ignore[no-untyped-call]
        try:
            pubsub.subscribe(channel)
            pubsub.get_message(timeout=1.0)
        except NoPermissionError:
            return False
        except RedisError:
            return True
    return True


def _user(client: RedisClient) -> str:
    try:
        return str(client.execute("ACL", "WHOAMI").decode(errors="replace"))
    except RedisError:
        return ""


def _kind(message: str, command: str) -> str:
    """Return the missing right: the command, or its key or channel."""
    if "channel" in message:
        return "channels surreal:*"
    return "keys surreal:*" if "key" in message else command
