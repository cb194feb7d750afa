"""`DurableReplay`: rows in Redis that outlive writers, readers and the server; no agent, learner or configuration.

replay = DurableReplay("answers", folder="answers")               starts a Redis that keeps its data in this folder
replay = DurableReplay("answers", address=address)                in other processes

replay.put({"tokens": [...], "reward": rewards}, version=7)       B rows; returns when Redis has them
batch = replay.consume(32)                                        each row goes to one reader
batch.commit(state=b"checkpoint-12")                              they are gone, and the state is stored: at once
rows = replay.sample(256)                                         or: uniformly from all rows, with replacement
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from redis.exceptions import OutOfMemoryError, ResponseError

from surreal.base.errors import ContractError, LeaseError, ReplayFullError
from surreal.base.ranges import NonNegative, NonNegativeInt, Positive, PositiveInt, checked
from surreal.distributed.connection.client import RedisClient, check_name
from surreal.distributed.durable.batch import DurableBatch, Taken
from surreal.distributed.durable.mirror import Mirror
from surreal.distributed.durable.packing import Columns, Rows, join, make_columns, pack, unpack
from surreal.distributed.server.embedded import EmbeddedRedis

_GROUP = "readers"
#: Entries that are read at once, and the longest wait of the server for a new one, ms.
_COUNT, _BLOCK_MS = 16, 200
#: How long a full replay is left alone, s: at first, and at most.
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.01, 0.5
#: Age at which `sample` looks for new rows, s.
_LOOK_INTERVAL_S = 0.02


class DurableReplay:
    """Rows of named columns, which any number of processes put, consume and sample.

    `put` returns when Redis has the rows. They are stored once, although a writer repeats itself after a lost
    connection; with `writer` and `step`, also if the writer was killed and started again. A batch is consumed exactly
    once: a reader that is killed before its commit gets the rows again, or another reader after `lease_s`. One thread
    of an object may consume; any thread may `put`.

    Args:
        name: name of the replay, the namespace of its keys: letters, digits, `.`, `_`, `-`.
        address: address of a Redis, as for `RedisClient`; None: start one, which ends with this object.
        folder: where the Redis that is started keeps its data; None: only in memory.
        max_bytes: memory of the Redis that is started.
        capacity: most rows; None: as many as Redis has memory for.
        when_full: "wait" for readers, or "evict" the oldest rows, consumed or not.
        wait_timeout_s: longest wait of `put` for room, and of all calls for Redis, s.
        reader: name of this reader. One that is started again under its name continues with the rows that it had.
        lease_s: how long a reader may have rows without committing them; after that, other readers may take them.
        seed: seed of `sample`.

    Raises:
        ValueError: a name or the address is not valid.
        RedisUnavailableError: there is no redis-server to start.
    """

    @checked
    def __init__(
        self,
        name: str = "durable",
        *,
        address: str | None = None,
        folder: str | Path | None = None,
        max_bytes: PositiveInt = 1 << 30,
        capacity: PositiveInt | None = None,
        when_full: Literal["wait", "evict"] = "wait",
        wait_timeout_s: NonNegative = 300.0,
        reader: str = "reader",
        lease_s: Positive = 60.0,
        seed: int | None = None,
    ) -> None:
        if address is not None and folder is not None:
            raise ValueError("folder is for a Redis that is started here; with an address, its server keeps the data")
        self._server: EmbeddedRedis | None = None
        if address is None:
            self._server = EmbeddedRedis(maxmemory_bytes=max_bytes, appendonly_dir=folder).start()
        self.address = self._server.address if self._server is not None else str(address)  #: for other processes
        self._client = RedisClient(self.address, run=name, retry_timeout_s=wait_timeout_s)
        if folder is not None:  # acknowledged rows are on the disk
            self._client.execute("CONFIG", "SET", "appendfsync", "always")
        self._stream, self._meta = self._client.run_keys.durable_stream, self._client.run_keys.durable_meta
        self._capacity, self._evicts = capacity or 0, when_full == "evict"
        self._wait_timeout_s = wait_timeout_s
        self._reader, self._lease_s = check_name(reader, "reader"), lease_s
        self._life, self._steps, self._lock = uuid.uuid4().hex, 0, threading.Lock()
        self._entries: deque[tuple[bytes, int, int, int, Columns]] = deque()  # id, used, rows, version, columns
        self._open: deque[DurableBatch] = deque()
        self._batches, self._claims_from = 0, b"0"
        self._resumes_from = b"0"  # id after which this reader's own entries are read; b"" once they were
        self._mirror, self._looked_s, self._rng = Mirror(), -1.0, np.random.default_rng(seed)

    def put(
        self, rows: Rows, *, version: NonNegativeInt = 0, writer: str | None = None, step: int | None = None
    ) -> bool:
        """Store rows, all or none.

        Args:
            rows: columns by name: an array [B, ...] of numbers, or a list of B sequences [L, ...] of any lengths.
                Numbers may be NaN. All rows of a replay have the same columns, dtypes and shapes, except for lengths.
            version: version of the policy that made them; `sample` and `consume` may ask for rows that are not older.
            writer: name of the writer, with `step`.
            step: number of these rows at the writer, which grows from call to call.

        Returns:
            False if this writer has stored this step before; nothing is changed then.

        Raises:
            ValueError, TypeError: the rows are not as described, or more than the capacity.
            ReplayFullError: there was no room for `wait_timeout_s`.
            RedisUnavailableError: Redis did not answer for as long; whether it has the rows is not known.
        """
        if (writer is None) is not (step is None):
            raise ValueError("writer and step belong together")
        columns = make_columns(rows)
        count = len(next(iter(columns.values())))
        if 0 < self._capacity < count:
            raise ValueError(f"{count} rows are more than the capacity, {self._capacity}")
        with self._lock:
            if step is None:
                self._steps += 1
            name = self._life if writer is None else check_name(writer, "writer")
            number = self._steps if step is None else step
            arguments = (name, number, count, self._capacity, int(self._evicts), version, _GROUP, pack(columns))
            return self._put(arguments) == b"ok"

    def _put(self, arguments: tuple[Any, ...]) -> bytes:
        deadline_s, wait_s = time.monotonic() + self._wait_timeout_s, _FIRST_WAIT_S
        while True:
            try:
                answer: bytes = self._call("durable_put", arguments, "put rows")
            except OutOfMemoryError:
                answer = b"memory"
            if answer in (b"ok", b"duplicate"):
                return answer
            if time.monotonic() + wait_s > deadline_s:
                bound = "Redis has no memory left" if answer == b"memory" else f"it holds {self._capacity} rows"
                raise ReplayFullError(
                    f"{self._client.run} took no rows for {self._wait_timeout_s:g} s: {bound}; does a reader commit?",
                    waited_s=self._wait_timeout_s,
                )
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def consume(
        self, rows: PositiveInt, *, min_version: NonNegativeInt = 0, timeout_s: float | None = None
    ) -> DurableBatch | None:
        """Take the oldest rows that no other reader has.

        Args:
            rows: size of the batch.
            min_version: rows of older versions are passed over, counted, and removed with the batch.
            timeout_s: longest wait for as many rows; None: no limit.

        Returns:
            A batch, which must be committed after those before it. None after the timeout: the rows stay for the next
            call.

        Raises:
            ValueError: the rows have different columns.
            CodecError: rows in Redis are damaged.
            RedisUnavailableError: Redis does not answer.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            fresh = sum(count - used for _, used, count, version, _ in self._entries if version >= min_version)
            if fresh >= rows:
                return self._take(rows, min_version)
            if not self._fetch():
                self._drop_stale(min_version)
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    return None

    def _drop_stale(self, min_version: int) -> None:
        """Remove the rows in front that are too old: writers may wait for their room."""
        taken = []
        while self._entries and self._entries[0][3] < min_version and not self._open:
            entry, used, count, *_ = self._entries.popleft()
            taken.append(Taken(entry, used, count, count))
        if taken:
            stale = sum(each.end - each.begin for each in taken)
            self._open.append(DurableBatch({}, taken, stale_rows=stale, version=0, commit=self._commit))
            self._open[0].commit()

    def _take(self, rows: int, min_version: int) -> DurableBatch:
        parts, taken, stale, oldest = [], [], 0, None
        while rows:
            entry, used, count, version, columns = self._entries.popleft()
            end = count
            if version < min_version:
                stale += count - used
            else:
                end = min(count, used + rows)
                parts.append({name: column[used:end] for name, column in columns.items()})
                rows -= end - used
                oldest = version if oldest is None else min(oldest, version)
                if end < count:
                    self._entries.appendleft((entry, end, count, version, columns))
            taken.append(Taken(entry, used, end, count))
        batch = DurableBatch(join(parts), taken, stale_rows=stale, version=oldest or 0, commit=self._commit)
        self._open.append(batch)
        return batch

    def _commit(self, batch: DurableBatch, state: bytes | None) -> None:
        if not any(each is batch for each in self._open):
            return  # it is committed
        if self._open[0] is not batch:
            raise ContractError("batches are committed in the order in which they were taken; commit the one before")
        number = f"{self._life}-{self._batches}"
        arguments: list[Any] = [_GROUP, self._reader, number, int(state is not None), state or b"", batch.stale_rows]
        arguments.append(len(batch.taken))
        for each in batch.taken:
            arguments += each
        arguments += sorted(self._held() - {each.entry for each in batch.taken})
        answer = self._call("durable_commit", arguments, "commit a batch")
        if answer != b"ok":
            self._entries.clear()
            self._open.clear()
            self._resumes_from = b"0"  # what it still has is read again
            raise LeaseError(
                f"reader {self._reader} kept rows for longer than another reader's lease_s, which took them; "
                "nothing was committed. Raise lease_s in all readers, or commit more often"
            )
        self._batches += 1
        self._open.popleft()

    def _fetch(self) -> bool:
        """Read more entries: first those that this reader had before it was started again; return if there were any."""

        def read() -> list[tuple[bytes, dict[bytes, bytes]]]:
            arguments = ("GROUP", _GROUP, self._reader, "COUNT", _COUNT)
            if self._resumes_from:
                own = ("XREADGROUP", *arguments, "STREAMS", self._stream, self._resumes_from)
                if found := _entries(self._ask(*own)):
                    return found
            if found := _entries(self._ask("XREADGROUP", *arguments, "STREAMS", self._stream, ">")):
                return found
            lease = ("XAUTOCLAIM", self._stream, _GROUP, self._reader, int(self._lease_s * 1000), self._claims_from)
            self._claims_from, claimed, *_ = self._ask(*lease, "COUNT", _COUNT)
            held = self._held()
            if left := [each for each in claimed if each and each[1] and each[0] not in held]:
                return _pairs(left)
            waiting = ("XREADGROUP", *arguments, "BLOCK", _BLOCK_MS, "STREAMS", self._stream, ">")
            return _entries(self._ask(*waiting))

        found = self._client.retry(read, what="read rows", timeout_s=self._wait_timeout_s)
        if self._resumes_from:
            self._resumes_from = found[-1][0] if found else b""
        there = [(entry, fields) for entry, fields in found if fields]  # others were evicted while a reader had them
        if there:
            names = [b"used:" + entry for entry, _ in there]
            used = self._client.retry(
                lambda: self._client.execute("HMGET", self._meta, *names),
                what="read rows",
                timeout_s=self._wait_timeout_s,
            )
            for (entry, fields), begin in zip(there, used, strict=True):
                self._entries.append(
                    (entry, int(begin or 0), int(fields[b"n"]), int(fields[b"v"]), unpack(fields[b"d"]))
                )
        return bool(found)

    def _held(self) -> set[bytes]:
        """Return the entries that this reader has."""
        return {entry for entry, *_ in self._entries} | {each.entry for batch in self._open for each in batch.taken}

    def _ask(self, *command: Any) -> Any:
        """Run a command of the group of readers, which is made with the first one."""
        try:
            return self._client.execute(*command)
        except ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            with suppress(ResponseError):  # another reader made it
                self._client.execute("XGROUP", "CREATE", self._stream, _GROUP, "0", "MKSTREAM")
            return self._client.execute(*command)

    def sample(self, rows: PositiveInt, *, min_version: NonNegativeInt = 0) -> Columns:
        """Draw rows uniformly, with replacement, from all that are stored; this process keeps a copy of them.

        Raises:
            ValueError: there are no rows, or none of `min_version`; or they have different columns.
            CodecError, RedisUnavailableError: see `consume`.
        """
        if time.monotonic() - self._looked_s >= _LOOK_INTERVAL_S:
            self._client.retry(self._look, what="read rows", timeout_s=self._wait_timeout_s)
            self._looked_s = time.monotonic()
        found = self._mirror.sample(rows, self._rng, min_version)
        if found is None:
            raise ValueError(
                f"{self._client.run} holds no rows" + (f" of version {min_version}" if min_version else "")
            )
        return found

    def _look(self) -> None:
        oldest = _pairs(self._client.execute("XRANGE", self._stream, "-", "+", "COUNT", 1))
        self._mirror.forget_before(oldest[0][0] if oldest else None)
        while True:
            begin = b"(" + self._mirror.last
            found = _pairs(self._client.execute("XRANGE", self._stream, begin, "+", "COUNT", _COUNT))
            for entry, fields in found:
                self._mirror.append(entry, unpack(fields[b"d"]), int(fields[b"v"]))
            if len(found) < _COUNT:
                return

    def state(self, reader: str | None = None) -> bytes | None:
        """Return the state of a reader's last commit; None if there is none. Default: this reader's."""
        return self._get(f"state:{reader or self._reader}")

    def last_step(self, writer: str) -> int | None:
        """Return the step that a writer stored last, after which it continues when it is started again; None: none."""
        found = self._get(f"step:{writer}")
        return None if found is None else int(found)

    def counts(self) -> dict[str, int]:
        """Return numbers of rows: `rows` that are stored; `put`, `consumed` and `stale` since the beginning."""
        return {name: int(self._get(name) or 0) for name in ("rows", "put", "consumed", "stale")}

    def __len__(self) -> int:
        return self.counts()["rows"]

    def _get(self, name: str) -> bytes | None:
        found: bytes | None = self._client.retry(
            lambda: self._client.execute("HGET", self._meta, name), what="read counts", timeout_s=self._wait_timeout_s
        )
        return found

    def _call(self, script: str, arguments: Any, what: str) -> Any:
        keys = (self._stream, self._meta)
        return self._client.retry(
            lambda: self._client.run_script(script, keys, arguments), what=what, timeout_s=self._wait_timeout_s
        )

    def close(self) -> None:
        """Close the connection, and end the Redis that this object started."""
        self._client.close()
        if self._server is not None:
            self._server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _entries(reply: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Read the reply of XREADGROUP for one stream."""
    return _pairs(reply[0][1]) if reply else []


def _pairs(entries: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Read entries of a stream; those that were deleted have no fields."""
    return [(entry, fields or {}) for entry, fields in entries if entry]
