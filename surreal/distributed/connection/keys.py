"""Every name that Surreal uses in Redis. No other file contains one.

`R` is the run's id, `S` the shard's number, `P` a policy's name ("default" unless several learners share a stream).
`P.IofN` is the part of a policy that parameter server I of N publishes. `P.past.V` is version V of it, in self-play.
Braces are hash tags: all keys of a shard, and all other keys of a run, live in one hash slot of a Redis Cluster. With
several shards, `S` is the number and a suffix, `2.17`: the first for which the shard's hash slot lies in its part of
the hash slots, so that shards spread evenly over the servers of a cluster.

| key | type | content | written by | read by | lifetime |
|---|---|---|---|---|---|
| `surreal:{R:sS}:stream` | stream | one entry a chunk: fields `id`, `head` | append script | PointerQueue | until evicted |
| `surreal:{R:sS}:block:ID` | string | observation rows and table of chunk ID | append script | PointerQueue | until evicted |
| `surreal:{R:sS}:staged:ID` | string | the same, on its way into the stream | ExpSender | append script | until the script, at most a minute |
| `surreal:{R:sS}:meta` | hash | `epoch`, `mode`, `steps`, `live_steps`, `live_bytes`, `chunks`, `other_steps`, `refused_steps`, `max_bytes`, `contract`, `done:ENTRY` | all scripts | all | the run |
| `surreal:{R:sS}:seq:SENDER` | string | last sequence number stored from a sender's incarnation | append script | append script, import | 1 h after use; an import's: the run |
| `surreal:{R:sS}:lease` | string | token of the replay that owns the stream | evict script | evict script | seconds, renewed |
| `surreal:{R:sS}:credit` | string | env steps the limiter lets in, in total | evict script | append script | seconds, renewed |
| `surreal:{R:s0}:gradients:P:state` | hash | `version`, `live_bytes`, `pushed`, `refused:REASON`, `taken:I`, `formation`, `forming` | gradient scripts | GradientSender, GradientQueue | the run |
| `surreal:{R:s0}:gradients:P:queue:I` | stream | one entry a gradient for parameter server I: fields `id`, `head`, `steps` | push_gradient script | GradientQueue | until taken and read, at most ten minutes after |
| `surreal:{R:s0}:gradients:P:block:ID:I:J` | string | part J of gradient ID for server I | push_gradient script | GradientQueue | until taken and read, at most ten minutes after |
| `surreal:{R:s0}:gradients:P:staged:ID:I:J` | string | the same, on its way into the queue | GradientSender | push_gradient script | until the script, at most a minute |
| `surreal:{R:s0}:gradients:P:last:SENDER` | string | sequence number and outcome of a sender's last gradient | push_gradient script | push_gradient script | 1 h after use |
| `surreal:{R:s0}:gradients:P:offers` | hash | `name` of the formation, and states that each server of a group can resume from, JSON | join_group script | join_group script | the run |
| `surreal:{R:s0}:gradients:P:gather:F:N` | hash | the servers' values in the Nth exchange of formation F | gather script | gather script | until the next but one, at most 10 min |
| `surreal:{R}:policy:P:params` | hash | `version`, `epoch`, `id`, `message`, `parts`, `data`, `publisher`, `published_s`, `previous`, `previous_parts`, `previous_version` | publish script | TorchListener, TorchBroadcaster | the run |
| `surreal:{R}:policy:P:part:ID:I` | string | part I of the parameters of publication ID, when they are more than 128 KiB; 2 MB each | TorchBroadcaster | TorchListener | until the next publication but one |
| `surreal:{R}:policy:P:lease` | string | token of the learner that publishes | publish, hold scripts | publish, hold scripts | seconds, renewed |
| `surreal:{R}:policy:P:contract` | string | parameter names, shapes and dtypes, JSON | learner, parameter servers | learner, agents | a minute, renewed |
| `surreal:{R}:policy:P:notice` | channel | the version just published, its id and number of parts | publish script | TorchListener | - |
| `surreal:{R}:policy:P:calls` | stream | one entry a call: fields `id`, `request`, `timeout_ms` | call script | CallServer | until taken |
| `surreal:{R}:policy:P:asked:ID` | string | that call ID was asked for | call script | call script | a minute longer than its caller waits |
| `surreal:{R}:policy:P:answer:ID` | list | the answer of call ID | CallServer | RemoteServer | until read, at most a minute |
| `surreal:{R}:policy:P:league` | string | past versions of the policy with their ratings, JSON | learner | agents, `surreal status` | the run |
| `surreal:{R}:policy:P:games` | stream | results of games against them: field `games` | agents | learner | until counted, newest 10,000 |
| `surreal:{R}:config` | string | the run's configuration, who registered it, and by which version and format of Surreal, JSON | launcher or learner, else the first process | every process | the run |
| `surreal:{R}:claim:NAME` | string | token of the process that is NAME in the run, `agent-0` | claim script | claim script, processes that register | seconds, renewed |
| `surreal:{R}:processes` | hash | process id -> heartbeat, JSON | every process | launcher, status, top, learner | the run |
| `surreal:{R}:log` | stream | log records, metrics and scores of all processes | every process | collector | newest 20,000 (of large ones, 32 MiB), and 10 min once written |
| `surreal:{R}:scores` | stream | `round`, as in `scores.jsonl`; of an evaluation without a launcher also `lines`, with its episodes | evaluation | learner, `surreal top` | newest 1000 |
| `surreal:{R}:best` | hash | `score` and `policy` of its best round, at most 64 MiB | evaluation | learner | the run |
| `surreal:{R}:durable:stream` | stream | one entry for the rows of a `DurableReplay.put`: fields `n`, `v`, `key` | durable_put script | DurableReplay | until consumed or evicted |
| `surreal:{R}:durable:rows:ID` | string | the rows of put ID, packed | durable_put script | DurableReplay | until consumed or evicted |
| `surreal:{R}:durable:staged:ID` | string | the same, on their way into the stream | DurableReplay | durable_put script | until the script, at most a minute |
| `surreal:{R}:durable:meta` | hash | `rows`, `columns`, `put`, `consumed`, `stale`, `step:WRITER`, `used:ENTRY`, `batch:READER`, `state:READER` | durable scripts | DurableReplay | the replay |
| `surreal:{R}:stop` | string | why the run ends | launcher, `surreal stop` | every process | the run |
| `surreal:{R}:attributes` | hash | name -> value of an attribute of environments that a callback has set, JSON | processes with callbacks | agents | the run |
| `surreal:{R}:ballast:I` | string | zeros, to use up memory | `surreal chaos` | - | seconds |
| `surreal:runs` | hash | run id -> creation time and title, JSON | first process | `surreal status` | until the run is deleted |

Nothing ever calls FLUSHALL; `RedisClient.delete_run` removes the keys of one run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import count

from redis.crc import REDIS_CLUSTER_HASH_SLOTS as NUM_SLOTS
from redis.crc import key_slot

#: Number of this layout, and of the arguments and replies of the scripts in lua/. Raise it with a change that processes
#: of the version before would misread; processes with other numbers then refuse each other (docs/upgrading.md).
FORMAT = 1
RUNS = "surreal:runs"
RUNS_HASH_SLOT = int(key_slot(RUNS.encode()))


class _Key(cached_property[str]):
    """A key of a group: its name, behind the group's `_base`."""

    def __init__(self, name: str) -> None:
        super().__init__(lambda keys: f"{keys._base}:{name}")


@dataclass(frozen=True)
class ShardKeys:
    """Names of one shard of a run's replay."""

    run: str
    shard: int = 0
    num_shards: int = 1

    @cached_property
    def _base(self) -> str:
        return f"surreal:{{{self._tag}}}"

    @cached_property
    def hash_slot(self) -> int:
        """Hash slot of these keys in a Redis Cluster."""
        return int(key_slot(self._tag.encode()))

    @cached_property
    def _tag(self) -> str:
        tag = f"{self.run}:s{self.shard}"
        if self.num_shards == 1:
            return tag
        # The middle half of the shard's part, because servers rarely divide the slots exactly evenly.
        begin = (self.shard + 0.25) * NUM_SLOTS / self.num_shards
        end = (self.shard + 0.75) * NUM_SLOTS / self.num_shards
        tags = (f"{tag}.{suffix}" for suffix in count())
        return next(tag for tag in tags if begin <= key_slot(tag.encode()) < end)

    prefix = _Key("")
    stream = _Key("stream")
    meta = _Key("meta")
    lease = _Key("lease")
    credit = _Key("credit")
    block_prefix = _Key("block:")
    staged_prefix = _Key("staged:")
    seq_prefix = _Key("seq:")

    def block(self, chunk_id: str) -> str:
        return self.block_prefix + chunk_id

    def staged(self, chunk_id: str) -> str:
        return self.staged_prefix + chunk_id

    def seq(self, sender: str) -> str:
        return self.seq_prefix + sender

    def gradients(self, policy: str) -> GradientKeys:
        """Names of a policy's gradients, in the hash slot of the run's counts, so that one script reaches both."""
        return GradientKeys(f"{self._base}:gradients:{policy}")


@dataclass(frozen=True)
class GradientKeys:
    """Names of one policy's gradients, at the first shard of a run's replay."""

    _base: str

    state = _Key("state")
    offers = _Key("offers")

    def queue(self, server: int) -> str:
        return f"{self._base}:queue:{server}"

    def block(self, gradient: str, server: int, part: int) -> str:
        return f"{self._base}:block:{gradient}:{server}:{part}"

    def staged(self, gradient: str, server: int, part: int) -> str:
        return f"{self._base}:staged:{gradient}:{server}:{part}"

    def last(self, sender: str) -> str:
        return f"{self._base}:last:{sender}"

    def gather(self, formation: str, number: int) -> str:
        return f"{self._base}:gather:{formation}:{number}"


@dataclass(frozen=True)
class PolicyKeys:
    """Names of one policy's parameters."""

    run: str
    policy: str = "default"

    @property
    def _base(self) -> str:
        return f"surreal:{{{self.run}}}:policy:{self.policy}"

    prefix = _Key("")
    params = _Key("params")
    lease = _Key("lease")
    contract = _Key("contract")
    notice = _Key("notice")
    league = _Key("league")
    games = _Key("games")
    calls = _Key("calls")

    def part(self, publication: str, index: int) -> str:
        return f"{self._base}:part:{publication}:{index}"

    def asked(self, number: str) -> str:
        return f"{self._base}:asked:{number}"

    def answer(self, number: str) -> str:
        return f"{self._base}:answer:{number}"


@dataclass(frozen=True)
class RunKeys:
    """Names that belong to the run as a whole."""

    run: str

    @property
    def _base(self) -> str:
        return f"surreal:{{{self.run}}}"

    @property
    def hash_slot(self) -> int:
        """Hash slot of these keys, and of the run's policies, in a Redis Cluster."""
        return int(key_slot(self.run.encode()))

    config = _Key("config")
    processes = _Key("processes")
    log = _Key("log")
    stop = _Key("stop")
    attributes = _Key("attributes")
    scores = _Key("scores")
    best = _Key("best")
    durable_stream = _Key("durable:stream")
    durable_meta = _Key("durable:meta")

    def durable_rows(self, put_id: str) -> str:
        return f"{self._base}:durable:rows:{put_id}"

    def durable_staged(self, put_id: str) -> str:
        return f"{self._base}:durable:staged:{put_id}"

    def claim(self, name: str) -> str:
        return f"{self._base}:claim:{name}"

    def ballast(self, index: int) -> str:
        return f"{self._base}:ballast:{index}"


#: The part after the hash tag in each kind of key of a shard, and of a run; "*" for the parts that differ. A test
#: compares them with the table above.
SHARD_KINDS = (
    *("stream", "block:*", "staged:*", "meta", "seq:*", "lease", "credit"),
    *(f"gradients:*:{name}" for name in ("state", "queue:*", "block:*", "staged:*", "last:*", "offers", "gather:*")),
)
RUN_KINDS = (
    *(f"policy:*:{name}" for name in ("params", "part:*", "lease", "contract", "notice")),
    *(f"policy:*:{name}" for name in ("calls", "asked:*", "answer:*", "league", "games")),
    *("config", "claim:*", "processes", "log", "scores", "best", "stop", "attributes", "ballast:*"),
    *("durable:stream", "durable:meta", "durable:rows:*", "durable:staged:*"),
)


def kind_pattern(kind: str, run: str = "*") -> str:
    """Pattern that matches every key of a kind, of one run or of all; `surreal:runs` is a separate kind."""
    if kind == RUNS:
        return RUNS
    return f"surreal:{{{run}:s*}}:{kind}" if kind in SHARD_KINDS else f"surreal:{{{run}}}:{kind}"


def run_pattern(run: str) -> tuple[str, str]:
    """SCAN patterns that match every key of a run (run ids contain no glob characters)."""
    return f"surreal:{{{run}}}:*", shards_pattern(run)


def shards_pattern(run: str) -> str:
    """SCAN pattern that matches every key of all of a run's shards."""
    return f"surreal:{{{run}:s*"


def stream_pattern(run: str) -> str:
    """SCAN pattern that matches the streams of all of a run's shards."""
    return f"{shards_pattern(run)}}}:stream"
