"""`GradientStore`: key names and commands of one policy's gradients in Redis."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from redis.exceptions import NoScriptError

from surreal.base.errors import CodecError, GroupChangedError
from surreal.distributed.connection.client import RedisClient, check_name
from surreal.distributed.connection.direct import MAX_PARTS, PARTS_AHEAD, DirectConnection
from surreal.distributed.connection.retry import number_of, text_of
from surreal.distributed.connection.wire import ScriptArg, ScriptChannel, load_script

#: Lifetime of the outcome of a sender's last push, s.
OUTCOME_TTL_S = 3600
#: Lifetime of a gradient after it was taken, s: longer than a server tries to read it.
TAKEN_TTL_S = 600
GROUP_CHANGED = "another parameter server of the group has restarted"
_GATHER_TTL_S = 600
_MAX_HEAD_BYTES = 4096


class GradientHead(NamedTuple):
    """The description of a gradient in a queue, next to its bytes."""

    version: int
    env_steps: int
    episodes: int
    updates: int
    sender: str
    parts: int
    size: int  #: of all parts for this server, bytes

    def encode(self) -> bytes:
        return json.dumps(self._asdict()).encode()

    @classmethod
    def decode(cls, text: bytes) -> GradientHead:
        """Undo `encode`; raises `CodecError` if it is anything else."""
        try:
            if len(text) <= _MAX_HEAD_BYTES:
                found = cls(**json.loads(text))
                numbers = (found.version, found.env_steps, found.episodes, found.updates, found.parts, found.size)
                are_counts = all(type(n) is int and 0 <= n < 2**53 for n in numbers)
                if are_counts and 1 <= found.parts <= MAX_PARTS and isinstance(found.sender, str):
                    return found
        except (TypeError, ValueError, RecursionError):
            pass
        raise CodecError(f"a gradient is described by {text[:100]!r}")


class QueueEntry(NamedTuple):
    """A gradient that waits in a queue, without its bytes."""

    entry_id: bytes
    gradient_id: str
    head: bytes
    global_step: int


class GradientPush(NamedTuple):
    """A gradient to be pushed, the same at every attempt."""

    gradient_id: str
    sender: str
    sequence: int
    env_steps: int
    version: int
    is_finite: bool
    heads: Sequence[bytes]  #: for each server
    parts: Sequence[Sequence[Sequence[memoryview]]]  #: for each server, its parts in pieces


class PushLimits(NamedTuple):
    """Limits beyond which a push is refused."""

    max_bytes: int
    max_staleness: int | None
    drops_when_full: bool


class Pushed(NamedTuple):
    """The outcome of a push."""

    #: ok; the reason of a refusal: stale, not_finite, full (with on_full "drop"); within the package also wait
    status: str
    global_step: int  #: env steps of the whole run, this push included
    newest_version: int  #: newest version that the servers announced; 0 before the first


class GradientStore:
    """Gradients of one policy, at the server of the first shard. Every method may be repeated."""

    def __init__(self, client: RedisClient, policy: str, num_replay_shards: int = 1) -> None:
        shard = client.shard_keys(0, num_replay_shards)
        self.client = client.at_hash_slot(shard.hash_slot)
        self.keys = shard.gradients(check_name(policy, "policy"))
        self._meta = shard.meta

    def push(self, channel: ScriptChannel, push: GradientPush, limits: PushLimits) -> Pushed:
        """Store a gradient's bytes and queue it, once; raises `OutOfMemoryError` at the server's maxmemory."""
        keys = self.keys
        parts = [(i, j) for i, found in enumerate(push.parts) for j in range(len(found))]
        staged = [keys.staged(push.gradient_id, i, j) for i, j in parts]
        blocks = [keys.block(push.gradient_id, i, j) for i, j in parts]
        contents = {name: push.parts[i][j] for name, (i, j) in zip(staged, parts, strict=True)}
        size = sum(len(piece) for pieces in contents.values() for piece in pieces)
        queues = [keys.queue(i) for i in range(len(push.heads))]
        args: list[Any] = [
            secrets.token_hex(8),  # an epoch, if the shard has none
            push.gradient_id,
            push.sequence,
            push.env_steps,
            size,
            limits.max_bytes,
            push.version,
            "" if limits.max_staleness is None else limits.max_staleness,
            int(push.is_finite),
            int(limits.drops_when_full),
            OUTCOME_TTL_S,
            len(push.heads),
            *push.heads,
        ]
        names = [self._meta, keys.state, keys.last(push.sender), *queues, *staged, *blocks]
        channel.begin("push_gradient", names, args, contents)
        status, _, steps, newest = channel.finish()
        return Pushed(text_of(status), number_of(steps), number_of(newest))

    def has_room(self, size: int, max_bytes: int) -> bool:
        live, forming = self.client.execute("HMGET", self.keys.state, "live_bytes", "forming")
        return not forming and (not number_of(live) or number_of(live) + size <= max_bytes)

    def first(
        self, connection: DirectConnection, server: int, wait_ms: int | None, done: Sequence[str] = ()
    ) -> QueueEntry | None:
        """Return the oldest entry of a server's queue; wait up to `wait_ms` (None: not at all) for one.

        Only the server uses the connection, because nothing else can be asked during the wait. The keys `done`, of the
        last gradient, are removed.
        """
        removes = [("UNLINK", *done)] if done else []
        waits = () if wait_ms is None else ("BLOCK", wait_ms)
        streams = connection.ask(*removes, ("XREAD", "COUNT", 1, *waits, "STREAMS", self.keys.queue(server), "0-0"))[-1]
        if not streams:
            return None
        entry_id, found = streams[0][1][0]
        fields = {bytes(name): value for name, value in zip(found[::2], found[1::2], strict=True)}
        steps = bytes(fields.get(b"steps", b""))
        return QueueEntry(
            entry_id,
            bytes(fields.get(b"id", b"")[:100]).decode("ascii", "replace"),
            bytes(fields.get(b"head", b"")),
            int(steps) if steps.isdigit() else 0,
        )

    def blocks(self, server: int, entry: QueueEntry, head: GradientHead | None) -> list[str]:
        return [self.keys.block(entry.gradient_id, server, part) for part in range(head.parts if head else 0)]

    def take(
        self,
        connection: DirectConnection,
        server: int,
        entry: QueueEntry,
        head: GradientHead | None,
        token: str,
        formation: str = "",
        *,
        buffer: memoryview | None = None,
    ) -> tuple[str, list[bytes | memoryview] | None]:
        """Remove a gradient from the queue and read it, in one round trip; the same `token`, fixed for the server's
        lifetime, may repeat it. Return "ok" if the caller has it, "gone", or "changed" for another `formation`; and its
        parts, small ones as bytes, larger ones in the buffer, or None if one is missing.

        Its parts stay for `TAKEN_TTL_S`, so that they can be read again if an answer is lost, or until they are passed
        to `first`, which gave the `entry`, as done. `head` is None if it could not be decoded. The buffer takes one
        part after the other; None: they are not read. One that is too small raises `CodecError`.
        """
        blocks = self.blocks(server, entry, head)
        keys = [self.keys.state, self.keys.queue(server), *blocks]
        args: list[ScriptArg] = [entry.entry_id, token, head.size if head else 0, server, formation, TAKEN_TTL_S]
        call = ("EVALSHA", load_script("take_gradient").sha1, len(keys), *keys, *args)
        reads = [("GET", name) for name in blocks] if buffer is not None else []
        left = memoryview(b"") if buffer is None else buffer

        def place(size: int) -> memoryview:
            nonlocal left
            if size > len(left):
                raise CodecError(f"{size} bytes are too many: there is room for {len(left)}")
            found, left = left[:size], left[size:]
            return found

        try:
            answer, *parts = connection.ask(call, *reads, into=place, most_ahead=1 + PARTS_AHEAD)
        except NoScriptError:
            self.client.run_script("take_gradient", keys, args)
            return self.take(connection, server, entry, head, token, formation, buffer=buffer)
        return text_of(answer), None if None in parts else parts

    def tell(self, version: int, global_step: int) -> tuple[int, int]:
        """Store the newest version and the known env steps; return env steps and version as Redis has them."""
        args: list[ScriptArg] = [secrets.token_hex(8), version, global_step]
        _, steps, newest = self.client.run_script("tell_version", [self._meta, self.keys.state], args)
        return number_of(steps), number_of(newest)

    def state(self) -> Mapping[str, bytes]:
        """Return the counts of the run, and the other fields that the scripts keep."""
        found: Any = self.client.redis.hgetall(self.keys.state)
        return {name.decode("ascii", "replace"): value for name, value in found.items()}

    def waiting(self, server: int) -> int:
        return int(self.client.execute("XLEN", self.keys.queue(server)))

    def join(
        self, server: int, number: int, new_name: str, begins: bool, former: str, offer: bytes, offered_to: str
    ) -> tuple[str, list[bytes] | None]:
        """Offer states to resume from; return the formation, and all offers once they are complete."""
        args: list[ScriptArg] = [new_name, int(begins), former, server, offer, offered_to, number]
        name, offers = self.client.run_script("join_group", [self.keys.state, self.keys.offers], args)
        return text_of(name), list(offers) if offers else None

    def gather(self, formation: str, count: int, server: int, number: int, value: bytes) -> list[bytes] | None:
        """Exchange values; None while one is missing. Raises `GroupChangedError` in another formation."""
        keys = self.keys
        names = [keys.state, keys.gather(formation, count), keys.gather(formation, count - 2)]
        answer = self.client.run_script("gather", names, [formation, server, value, _GATHER_TTL_S, number])
        if answer == b"changed":
            raise GroupChangedError(GROUP_CHANGED)
        return list(answer) or None
