"""One shard of a run's replay in Redis: key names and commands, without state.

Senders call `append`, the PointerQueue `read` and `fetch`, the replay that owns the stream `tick`. The scripts' texts
(`lua/append.lua`, `lua/evict.lua`) explain their arguments.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from redis.exceptions import OutOfMemoryError, RedisError, ResponseError

from surreal.base.errors import ContractError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import ShardKeys
from surreal.distributed.connection.retry import number_of, text_of
from surreal.distributed.connection.wire import STAGE_TTL_S, ScriptChannel

if TYPE_CHECKING:  # they import Arrow and gymnasium, which a process that only counts does not need
    from surreal.distributed.experience.codec import Contract, EncodedChunk

#: Lifetime of a sender's last sequence number after its last chunk, s.
SEQUENCE_TTL_S = 3600
#: Random bytes of the epoch that a shard without one gets: an emptied Redis must not go unnoticed.
_EPOCH_BYTES = 8
_DONE = b"done:"


class Appended(NamedTuple):
    """Answer of the append script."""

    status: str  #: ok, duplicate, full, credit, contract or mismatch
    epoch: str
    steps: int  #: env steps of the run so far; those of other shards as last reported by their owner
    detail: bytes


_FULL = Appended("full", "", 0, b"out of memory")


class AppendOptions(NamedTuple):
    """Arguments of the append script besides the chunk."""

    sender: str  #: the sender's incarnation
    sequence: int  #: number of the chunk, rising
    contract: Contract
    sends_contract: bool  #: whether to send the contract itself
    is_limited: bool  #: whether to ask the limiter
    default_bound_bytes: int  #: bound of the stream if no owner has set one, bytes; 0: none


class StreamEntry(NamedTuple):
    """A chunk's head and ids, as read from the stream."""

    entry_id: bytes
    chunk_id: str
    head: bytes


class OwnerState(NamedTuple):
    """Answer of the evict script: the state of the stream after its owner's call."""

    is_owner: bool
    epoch: str  #: or the token of the other owner
    steps: int  #: env steps of the shard so far, or ms left of the other owner's lease
    live_steps: int
    live_bytes: int
    removed_chunks: int
    samples: int  #: samples drawn, as last stored by an owner
    refused_steps: int  #: steps of the largest chunk that was refused for lack of credit


class StreamCounts(NamedTuple):
    """Counts of a shard."""

    epoch: str  #: "" if the shard has none (yet, or anymore)
    steps: int  #: env steps so far
    live_steps: int
    live_bytes: int


class Eviction(NamedTuple):
    """A chunk to be removed."""

    entry_id: bytes
    chunk_id: str
    steps: int
    stored_bytes: int
    epoch: str  #: epoch in which it was stored


class Mark(NamedTuple):
    """The consumed steps of a chunk, in a stream of mode `consume`."""

    entry_id: bytes
    done: bytes  #: one bit for each step that the chunk owns
    epoch: str  #: epoch in which it was stored


class Stream:
    """Key names (None: the only shard's) and commands of one shard, which has a share of its server's memory."""

    is_local: bool = False  #: whether it is in this process, so that an append is answered at once; see `local`

    def __init__(
        self, client: RedisClient, keys: ShardKeys | None = None, *, server_share: float = 1.0, shard: int = 0
    ) -> None:
        self.client = client
        self.keys = keys or client.shard_keys()
        self.shard = shard
        self._server_share = server_share

    def append(self, chunk: EncodedChunk, options: AppendOptions) -> Appended:
        """Store a chunk once, and wait for the answer; safe to repeat. Redis at its maxmemory counts as "full"."""
        keys, args = self._append_call(chunk, options)
        try:
            self.client.execute("SETEX", keys[-1], STAGE_TTL_S, b"".join(chunk.pieces))
            return _appended(self.client.run_script("append", keys, args))
        except OutOfMemoryError:
            return _FULL

    def begin_append(self, channel: ScriptChannel, chunk: EncodedChunk, options: AppendOptions) -> None:
        """Send the same call without waiting for its answer; the observations go to the socket uncopied."""
        keys, args = self._append_call(chunk, options)
        channel.begin("append", keys, args, {keys[-1]: chunk.pieces})

    def finish_append(self, channel: ScriptChannel) -> Appended:
        try:
            return _appended(channel.finish())
        except OutOfMemoryError:
            return _FULL

    def refusal(self, chunk: EncodedChunk, options: AppendOptions) -> Appended | None:
        """Ask whether a chunk has room and credit, without sending it; return "full", "credit", or None for both."""
        args = [chunk.own_steps, chunk.stored_bytes, options.default_bound_bytes, b"1" if options.is_limited else b""]
        try:
            status = self.client.run_script("room", [self.keys.meta, self.keys.credit], args).decode()
        except OutOfMemoryError:
            return _FULL
        return None if status == "ok" else Appended(status, "", 0, b"")

    def _append_call(self, chunk: EncodedChunk, options: AppendOptions) -> tuple[list[str], list[Any]]:
        keys, contract, chunk_id = self.keys, options.contract, f"{options.sender}-{options.sequence}"
        args: list[Any] = [secrets.token_hex(_EPOCH_BYTES), chunk_id, options.sequence]
        args += [chunk.own_steps, chunk.stored_bytes]
        args += [f"{contract.id:016x}", contract.as_bytes if options.sends_contract else b""]
        args += [b"1" if options.is_limited else b"", options.default_bound_bytes, SEQUENCE_TTL_S, chunk.head]
        names = [keys.stream, keys.meta, keys.block_prefix + chunk_id]
        names += [keys.seq_prefix + options.sender, keys.credit, keys.staged_prefix + chunk_id]
        return names, args

    def read(self, cursor: bytes, count: int, block_ms: int | None) -> list[StreamEntry]:
        """Read entries after the cursor, oldest first; wait up to `block_ms` (None: not at all) for the first."""
        entries = self.client.read_stream(self.keys.stream, cursor, count, block_ms)
        return [StreamEntry(entry, text_of(fields.get(b"id")), fields.get(b"head", b"")) for entry, fields in entries]

    def fetch(self, chunks: Sequence[tuple[str, int]]) -> tuple[str, list[bytes | None]]:
        """Read contents, or only their tables, in one round trip: for each chunk, its id and a number of bytes from its
        end (0: all). Return the shard's epoch, and the bytes of each chunk; None if it is gone.
        """
        pipeline = self.client.redis.pipeline(transaction=False)
        pipeline.hget(self.keys.meta, "epoch")
        for chunk_id, end_bytes in chunks:
            name = self.keys.block_prefix + chunk_id
            _ = pipeline.getrange(name, -end_bytes, -1) if end_bytes else pipeline.get(name)
        epoch, *contents = pipeline.execute()
        return text_of(epoch), [content or None for content in contents]

    def oldest(self) -> tuple[str, bytes | None]:
        """Return the shard's epoch, and the id of the oldest entry, None if there is none."""
        pipeline: Any = self.client.redis.pipeline(transaction=False)
        epoch, entries = pipeline.hget(self.keys.meta, "epoch").xrange(self.keys.stream, count=1).execute()
        return text_of(epoch), bytes(entries[0][0]) if entries else None

    def counts(self) -> StreamCounts:
        answer: Any = self.client.redis.hmget(self.keys.meta, "epoch", "steps", "live_steps", "live_bytes")
        epoch, *numbers = answer
        return StreamCounts(text_of(epoch), *map(number_of, numbers))

    def end(self) -> tuple[str, bytes]:
        """Return the shard's epoch ("" if it has none), and the largest entry id that it ever assigned."""
        pipeline: Any = self.client.redis.pipeline(transaction=False)
        pipeline.hget(self.keys.meta, "epoch").xinfo_stream(self.keys.stream)
        epoch, info = pipeline.execute(raise_on_error=False)
        if isinstance(info, ResponseError) and "no such key" in str(info):
            info = {"last-generated-id": b"0-0"}
        for answer in (epoch, info):
            if isinstance(answer, RedisError):
                raise answer
        return text_of(epoch), bytes(info["last-generated-id"])

    def which_exist(self, entries: Sequence[StreamEntry]) -> list[bool]:
        pipeline = self.client.redis.pipeline(transaction=False)
        for entry in entries:
            pipeline.xrange(self.keys.stream, entry.entry_id, entry.entry_id)
        found = pipeline.execute()
        ids = [text_of(there[0][1].get(b"id")) if there else None for there in found]
        return [chunk_id == entry.chunk_id for chunk_id, entry in zip(ids, entries, strict=True)]

    def contract(self) -> bytes | None:
        """Return the stored contract as JSON bytes; None if there is none, or another client has spoiled it."""
        text, is_sound = self._stored_contract()
        return text if is_sound else None

    def drop_contract(self) -> None:
        """Remove a spoiled contract: the next sender stores it again."""
        self.client.redis.hdel(self.keys.meta, "contract", "contract_id")

    def repair_contract(self, contract: Contract) -> bytes:
        """Replace a stored contract that is spoiled, and return the one that is stored then."""
        stored, is_sound = self._stored_contract()
        if is_sound:
            return stored
        ours = contract.as_bytes
        self.client.execute("HSET", self.keys.meta, "contract_id", f"{contract.id:016x}", "contract", ours)
        return ours

    def _stored_contract(self) -> tuple[bytes, bool]:
        """Return the stored contract, and whether it matches the stored id."""
        from surreal.distributed.experience.data_contract import hash_of

        found: Any = self.client.redis.hmget(self.keys.meta, "contract", "contract_id")
        text, stored_id = (bytes(value or b"") for value in found)
        return text, f"{hash_of(text):016x}".encode() == stored_id

    def marks(self) -> dict[bytes, bytes]:
        """Return the consumed steps of the live chunks: entry id -> one bit per step."""
        answer: Any = self.client.redis.hgetall(self.keys.meta)
        return {bytes(key)[len(_DONE) :]: bytes(done) for key, done in answer.items() if key.startswith(_DONE)}

    def maxmemory_bytes(self) -> int:
        """Return this shard's part of the server's memory limit, 0 if there is no limit."""
        memory: Any = self.client.redis.info("memory")
        return int(memory.get("maxmemory", 0) * self._server_share)

    def server_time_s(self) -> float:
        """Return the clock of the entry ids, s since 1970."""
        return self.client.server_time_s()

    def tick(
        self,
        token: str,
        *,
        lease_ms: int,
        max_bytes: int,
        credit_steps: int | None = None,
        samples: int | None = None,
        recount_steps: int = 0,
        other_steps: int = 0,
        mode: str = "window",
        marks: Sequence[Mark] = (),
        evict: Sequence[Eviction] = (),
        void: str = "",
    ) -> OwnerState:
        """Renew the lease, grant credit, mark and remove chunks (all of one epoch), atomically; safe to repeat.

        A lease whose token is `void` is taken over. Other arguments are those of the evict script. Raises
        `ContractError` if the stream's first owner has fixed another mode.
        """
        keys = self.keys
        args: list[Any] = [token, lease_ms, secrets.token_hex(_EPOCH_BYTES)]
        args += ["" if credit_steps is None else credit_steps]
        args += [max(lease_ms, 1), max_bytes, "" if samples is None else samples, recount_steps, other_steps]
        args += [evict[0].epoch if evict else marks[0].epoch if marks else "", mode, len(marks), void]
        for mark in marks:
            args += [mark.entry_id, mark.done]
        for chunk in evict:
            args += [chunk.entry_id, chunk.steps, chunk.stored_bytes]
        blocks = [keys.block_prefix + chunk.chunk_id for chunk in evict]
        answer = self.client.run_script("evict", [keys.stream, keys.meta, keys.lease, keys.credit, *blocks], args)
        if answer[0] == b"mode":
            raise ContractError(
                f"the replay of run {self.client.run} is of mode {text_of(answer[1])}, not {mode}: replays that consume"
                " (FIFO) and those that keep a window cannot own the same stream; use another run"
            )
        return OwnerState(answer[0] == b"ok", text_of(answer[1]), *map(number_of, answer[2:]))


def _appended(answer: Any) -> Appended:
    status, epoch, steps, detail = answer
    return Appended(status.decode(), text_of(epoch), number_of(steps), detail)
