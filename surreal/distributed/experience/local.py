"""A shard in this process's own memory, for an agent that learns from its own trajectories.

Sender and replay use it like one in Redis, so both ends run the same code: chunks, contract, bounds, eviction,
consumption. It has one sender and one replay in one process, and ends with it. So it needs no lease and no repetition,
and a block is dropped when it has been fetched.

    shards = LocalShards(run)
    sender, replay = ExpSender(shards), UniformReplay(shards, observations="mirrored")
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import ShardKeys
from surreal.distributed.experience.codec import Contract, EncodedChunk
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.experience.stream import (
    Appended,
    AppendOptions,
    Eviction,
    OwnerState,
    Stream,
    StreamCounts,
    StreamEntry,
)


class LocalStream(Stream):
    """The commands of one shard, executed immediately, without a server or the limiter's credit; for one thread."""

    is_local = True

    def __init__(self, client: RedisClient, keys: ShardKeys) -> None:
        super().__init__(client, keys)
        self.run_steps = 0  #: env steps of the whole run, if more are known than were appended here
        self._epoch = secrets.token_hex(8)
        self._contract: Contract | None = None
        self._entries: dict[bytes, StreamEntry] = {}  # in order
        self._contents: dict[str, bytes] = {}  # of chunks that were not fetched yet
        self._number = 0
        self._end = b"0-0"
        self._max_bytes: int | None = None
        self._steps = self._live_steps = self._live_bytes = self._samples = 0

    def append(self, chunk: EncodedChunk, options: AppendOptions) -> Appended:
        bound = options.default_bound_bytes if self._max_bytes is None else self._max_bytes
        if self._contract is not None and self._contract.id != options.contract.id:
            return self._appended("mismatch", self._contract.as_bytes)
        if bound and self._live_bytes + chunk.stored_bytes > bound:
            return self._appended("full")
        self._contract = options.contract
        self._number += 1
        entry_id = self._end = b"%d-%d" % (time.time_ns() // 1_000_000, self._number)
        chunk_id = f"{options.sender}-{options.sequence}"
        self._entries[entry_id] = StreamEntry(entry_id, chunk_id, bytes(chunk.head))
        self._contents[chunk_id] = b"".join(chunk.pieces)
        self._steps += chunk.own_steps
        self._live_steps += chunk.own_steps
        self._live_bytes += chunk.stored_bytes
        return self._appended("ok")

    def refusal(self, chunk: EncodedChunk, options: AppendOptions) -> Appended | None:
        """Return None: `append` answers at once."""
        return None

    def read(self, cursor: bytes, count: int, block_ms: int | None) -> list[StreamEntry]:
        """Read entries after the cursor, oldest first; never waits."""
        after = _number_of(cursor)
        new = list(takewhile(lambda entry: _number_of(entry.entry_id) > after, reversed(self._entries.values())))
        return new[::-1][:count]

    def fetch(self, chunks: Sequence[tuple[str, int]]) -> tuple[str, list[bytes | None]]:
        """Hand over contents, or their ends; each once."""
        contents = [self._contents.pop(chunk_id, None) for chunk_id, _ in chunks]
        ends = [end_bytes for _, end_bytes in chunks]
        return self._epoch, [content and content[-end:] for content, end in zip(contents, ends, strict=True)]

    def counts(self) -> StreamCounts:
        return StreamCounts(self._epoch, self._steps, self._live_steps, self._live_bytes)

    def end(self) -> tuple[str, bytes]:
        return self._epoch, self._end

    def contract(self) -> bytes | None:
        return None if self._contract is None else self._contract.as_bytes

    def marks(self) -> dict[bytes, bytes]:
        """Return {}: no other replay has consumed anything."""
        return {}

    def maxmemory_bytes(self) -> int:
        """Return 0: only the replay's bound counts."""
        return 0

    def server_time_s(self) -> float:
        return time.time()

    def tick(
        self, token: str, *, max_bytes: int, samples: int | None = None, evict: Sequence[Eviction] = (), **_: Any
    ) -> OwnerState:
        before, self._max_bytes = self._samples, max_bytes
        self._samples = before if samples is None else samples
        removed = 0
        for chunk in evict:
            if self._entries.pop(chunk.entry_id, None) is not None:
                self._contents.pop(chunk.chunk_id, None)
                self._live_steps -= chunk.steps
                self._live_bytes -= chunk.stored_bytes
                removed += 1
        return OwnerState(True, self._epoch, self._steps, self._live_steps, self._live_bytes, removed, before, 0)

    def _appended(self, status: str, detail: bytes = b"") -> Appended:
        return Appended(status, self._epoch, max(self._steps, self.run_steps), detail)


def _number_of(entry_id: bytes) -> int:
    return int(entry_id.partition(b"-")[2])


class LocalShards(ReplayShards):
    """The only shard of an agent's own replay."""

    def __init__(self, run: str) -> None:
        super().__init__(RedisClient(run=run))
        self.local = LocalStream(self.clients[0], self.keys[0])

    def stream(self, shard: int) -> Stream:
        if shard != 0:
            raise ValueError(f"shard is {shard}; it must be 0")
        return self.local
