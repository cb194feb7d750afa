"""The rights of each kind of process in Redis: which commands it may use on which kinds of keys, and nothing else.

`surreal redis --acl` makes Redis users from this table (`distributed/server/access.py`); docs/security.md shows it. The
kinds of keys are those of `keys.py`. Redis checks every command inside a script with its caller's rights, so a script
is listed with the commands that it calls. A test compares them with its text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from surreal.distributed.connection.keys import RUN_KINDS, RUNS, SHARD_KINDS

#: Kind of key -> the commands on it, separated by blanks.
Table = Mapping[str, str]

#: Script of `lua/` -> the commands that it calls on its keys.
SCRIPTS: Mapping[str, Table] = {
    "append": {
        "stream": "xlen xadd",
        "meta": "hmget hget hset",
        "block:*": "exists rename persist",
        "seq:*": "get expire set",
        "credit": "get",
        "staged:*": "exists rename unlink",
    },
    "room": {"meta": "hmget hset", "credit": "get"},
    "evict": {
        "stream": "xdel",
        "meta": "persist hget hset hdel hmget",
        "block:*": "unlink",
        "lease": "get pttl set unlink",
        "credit": "set",
    },
    "durable_put": {
        "durable:stream": "xrange xdel exists xgroup xadd",
        "durable:meta": "hget hdel hset hincrby",
        "durable:staged:*": "exists rename unlink",
        "durable:rows:*": "rename persist unlink",
    },
    "durable_commit": {
        "durable:stream": "xpending xrange xack xdel xclaim",
        "durable:meta": "hget hdel hset hincrby",
        "durable:rows:*": "unlink",
    },
    "call": {"policy:*:calls": "xlen xadd", "policy:*:asked:*": "exists set"},
    "claim": {"claim:*": "get pttl unlink set"},
    "swap": {"config": "get unlink set"},
    "publish": {
        "policy:*:params": "hmget unlink hset",
        "policy:*:lease": "get pttl set",
        "policy:*:part:*": "exists persist unlink",
        "policy:*:notice": "publish",
    },
    "hold": {"policy:*:params": "hmget", "policy:*:lease": "get pttl unlink set"},
    "push_gradient": {
        "meta": "hmget hset",
        "gradients:*:state": "hmget hincrby",
        "gradients:*:last:*": "get expire set",
        "gradients:*:queue:*": "xadd",
        "gradients:*:block:*": "rename persist",
        "gradients:*:staged:*": "exists rename unlink",
    },
    "take_gradient": {
        "gradients:*:state": "hget hincrby hset",
        "gradients:*:queue:*": "xdel",
        "gradients:*:block:*": "expire",
    },
    "tell_version": {"meta": "persist hmget hset", "gradients:*:state": "hget hset"},
    "join_group": {"gradients:*:state": "hset hdel", "gradients:*:offers": "hget unlink hset"},
    "gather": {"gradients:*:state": "hget", "gradients:*:gather:*": "unlink hset expire hlen hget"},
}
#: A script is sent once, then called by its digest.
_CALL = "evalsha eval"
#: Kinds of keys that are channels.
CHANNELS = ("policy:*:notice",)
#: Commands of every process: check the server, its version and its clock; in a cluster, find the keys.
_KEYLESS = "ping time info cluster|slots command"


@dataclass(frozen=True)
class User:
    """One kind of user."""

    name: str  #: name in Redis, after the run's id if the user may see one run only
    serves: str  #: the commands of Surreal that use it
    scripts: tuple[str, ...] = ()  #: names of the scripts that it calls
    keys: Table = field(default_factory=dict)  #: its commands outside scripts
    keyless: str = _KEYLESS  #: commands that take no key

    def commands(self) -> dict[str, frozenset[str]]:
        """Return command -> kinds of keys, scripts included; none for commands without keys."""
        found: dict[str, set[str]] = {command: set() for command in self.keyless.split()}
        # A call names all keys of its script, so its caller needs the call for each of them.
        calls = [dict.fromkeys(set(SCRIPTS[name]) - set(CHANNELS), _CALL) for name in self.scripts]
        for table in (*(SCRIPTS[name] for name in self.scripts), *calls, self.keys):
            for kind, commands in table.items():
                for command in commands.split():
                    found.setdefault(command, set()).add(kind)
        return {command: frozenset(kinds) for command, kinds in found.items()}


def _together(*tables: Table) -> dict[str, str]:
    found: dict[str, str] = {}
    for table in tables:
        for kind, commands in table.items():
            found[kind] = " ".join(dict.fromkeys([*found.get(kind, "").split(), *commands.split()]))
    return found


#: Any process of a run: its name, heartbeat and log, and the run's configuration and end.
_PART: Table = {
    "config": "get",
    "claim:*": "exists",
    "processes": "hset hgetall hdel",
    "log": "xadd",
    "stop": "get set del",
    "policy:*:params": "hexists",
}
#: Processes with callbacks.
_CALL_BACK: Table = {"attributes": "hset hgetall"}
#: Processes that read parameters: listeners, and learners that resume.
_FOLLOW: Table = {
    "policy:*:params": "hmget hget",
    "policy:*:part:*": "get",
    "policy:*:lease": "exists",
    "policy:*:contract": "get",
}
_LISTEN = _together(_FOLLOW, {"policy:*:notice": "subscribe", "policy:*:league": "get"})
#: Processes that may set the run's configuration. They drop experience that others sent before.
_LEAD = _together(
    {"config": "set", "claim:*": "get", RUNS: "hsetnx", "meta": "hmget", "policy:*:contract": "del"},
    dict.fromkeys(SHARD_KINDS, "unlink"),
)
#: Processes that write logs, metrics and scores into the run's folder.
_COLLECT: Table = {"log": "xread xrevrange xtrim"}
_COLLECT_SCORES: Table = {"scores": "xread xrevrange", "best": "hmget"}
_ANSWER: Table = {"policy:*:calls": "xread xdel", "policy:*:answer:*": "rpush pexpire"}
_PUBLISH: Table = {"policy:*:part:*": "set setex pexpire", "policy:*:contract": "set pexpire"}
#: Learners and parameter servers.
_IMPROVE = _together(_PART, _CALL_BACK, _FOLLOW, _LEAD, _COLLECT, _COLLECT_SCORES, _ANSWER, _PUBLISH)
#: Commands that show a run.
_LOOK: Table = {
    RUNS: "hgetall",
    "config": "get",
    "processes": "hgetall",
    "stop": "get",
    "log": "xrevrange",
    "scores": "xrevrange",
    "best": "hget",
    "policy:*:params": "hget",
    "meta": "hmget hgetall",
    "stream": "xlen xrange xrevrange",
    "lease": "get",
}

AGENT = User(
    "agent",
    "`surreal agent`, `surreal rlx-server`",
    ("claim", "append", "room", "push_gradient", "call"),
    _together(
        _PART,
        _CALL_BACK,
        _LISTEN,
        {
            "meta": "hmget",
            "staged:*": "setex",
            "gradients:*:state": "hmget",
            "gradients:*:staged:*": "setex",
            "policy:*:answer:*": "blpop",
            "policy:*:games": "xadd",
        },
    ),
    f"{_KEYLESS} multi exec",
)
LEARNER = User(
    "learner",
    "`surreal learner`",
    ("claim", "swap", "evict", "publish", "hold"),
    _together(
        _IMPROVE,
        {
            "stream": "xread xrange xinfo|stream",
            "meta": "hget hgetall",
            "block:*": "get getrange",
            "policy:*:league": "set",
            "policy:*:games": "xrange xdel",
            "policy:*:params": "exists unlink",
            "policy:*:part:*": "unlink",
            "policy:*:lease": "unlink",
            "policy:*:contract": "unlink",
        },
    ),
    f"{_KEYLESS} echo scan",
)
PARAMETER_SERVER = User(
    "parameter-server",
    "`surreal ps`",
    ("claim", "swap", "publish", "hold", "take_gradient", "tell_version", "join_group", "gather"),
    _together(
        _IMPROVE,
        {"gradients:*:state": "hgetall", "gradients:*:queue:*": "xread xlen", "gradients:*:block:*": "get unlink"},
    ),
    f"{_KEYLESS} multi exec scan",
)
EVALUATION = User(
    "evaluation",
    "`surreal eval`, `surreal watch`",
    ("claim",),
    _together(_PART, _CALL_BACK, _LISTEN, {"scores": "xadd", "best": "hset"}),
    f"{_KEYLESS} multi exec",
)
OBSERVER = User(
    "observer", "`surreal status`, `top`, `metrics`, `health`, `dashboard`, `doctor`, `runs`, `compare`", (), _LOOK
)
LAUNCHER = User(
    "launcher",
    "`surreal run`, `sweep`, `stop`, `replay`",
    ("claim", "swap", "append", "room"),
    _together(
        _PART,
        _LEAD,
        _COLLECT,
        {kind: "unlink" for kind in RUN_KINDS if kind not in CHANNELS},
        {
            RUNS: "hgetall hdel",
            "best": "hget",
            "policy:*:params": "hget",
            "staged:*": "setex",
            "stream": "xread xlen xrange xrevrange exists xinfo|stream",
            "meta": "hget hgetall",
            "block:*": "get exists",
            "seq:*": "mget persist",
            "lease": "get exists",
        },
    ),
    f"{_KEYLESS} scan",
)
#: All users except the administrator, who may do everything.
USERS = (AGENT, LEARNER, PARAMETER_SERVER, EVALUATION, OBSERVER, LAUNCHER)
ADMINISTRATOR = "administrator"
