"""`DurableReplay`: rows in Redis that outlive writers, readers and the server; no agent, learner or configuration.

    replay = DurableReplay("answers", folder="answers")            starts a Redis that keeps its data in this folder
    replay = DurableReplay("answers", address=address)             in other processes

    replay.put({"tokens": [...], "reward": rewards}, version=7)    B rows; returns when Redis has them
    batch = replay.consume(32)                                     each row goes to one reader
    batch.commit(state=b"checkpoint-12")                           they are gone, and the state is stored: at once
    with replay.consume(32) as batch: ...                          or: committed here, unless an exception ends it
    rows = replay.sample(256)                                      or: uniformly from all rows, with replacement

`reader.py` takes and commits rows; `packing.py` has their bytes, and the copy that `sample` draws from.
"""

from __future__ import annotations

import threading
import time
import uuid
from pathlib import Path
from typing import Any, Literal, Self, overload

import numpy as np
from redis.exceptions import OutOfMemoryError

from surreal.base.errors import ContractError, ReplayFullError
from surreal.base.ranges import NonNegative, NonNegativeInt, Positive, PositiveInt, checked
from surreal.distributed.connection.client import RedisClient, check_name
from surreal.distributed.durable.packing import Columns, Mirror, Rows, describe, make_columns, pack, unpack
from surreal.distributed.durable.reader import DurableBatch, DurableReader
from surreal.distributed.durable.server import GROUP, DurableServer, read_pairs
from surreal.distributed.server.embedded import EmbeddedRedis

#: Entries that `sample` reads at once.
_COUNT = 16
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
        check_name(name, "name"), check_name(reader, "reader")
        self._redis = None if address else EmbeddedRedis(maxmemory_bytes=max_bytes, appendonly_dir=folder).start()
        self.address = self._redis.address if self._redis is not None else str(address)  #: for other processes
        client = RedisClient(self.address, run=name, retry_timeout_s=wait_timeout_s)
        self._server = DurableServer(client, wait_timeout_s)
        if folder is not None:  # acknowledged rows are on the disk
            client.execute("CONFIG", "SET", "appendfsync", "always")
        self._capacity, self._evicts = capacity or 0, when_full == "evict"
        self._life, self._steps, self._lock = uuid.uuid4().hex, 0, threading.Lock()
        self._reader = DurableReader(self._server, reader, lease_s)
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
            ContractError: the replay holds rows with other columns.
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
            arguments = (name, number, count, self._capacity, int(self._evicts), version, GROUP)
            return self._put(f"{name}-{number}", pack(columns), (*arguments, describe(columns))) == b"ok"

    def _put(self, put_id: str, data: bytes, arguments: tuple[Any, ...]) -> bytes:
        deadline_s, wait_s = time.monotonic() + self._server.timeout_s, _FIRST_WAIT_S
        while True:
            try:
                answer = self._server.put(put_id, data, arguments)
            except OutOfMemoryError:
                answer = b"memory"
            if answer in (b"ok", b"duplicate"):
                return answer
            if answer not in (b"full", b"memory"):
                name, own = self._server.client.run, arguments[-1]
                raise ContractError(f"{name} holds rows with {answer.decode()}; these have {own}")
            if time.monotonic() + wait_s > deadline_s:
                bound = "Redis has no memory left" if answer == b"memory" else f"it holds {self._capacity} rows"
                waited_s = self._server.timeout_s
                problem = f"took no rows for {waited_s:g} s: {bound}; does a reader commit?"
                raise ReplayFullError(f"{self._server.client.run} {problem}", waited_s=waited_s)
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    @overload
    def consume(self, rows: int, *, min_version: int = 0, timeout_s: None = None) -> DurableBatch: ...
    @overload
    def consume(self, rows: int, *, min_version: int = 0, timeout_s: float) -> DurableBatch | None: ...

    def consume(
        self, rows: PositiveInt, *, min_version: NonNegativeInt = 0, timeout_s: float | None = None
    ) -> DurableBatch | None:
        """Take the oldest rows that no other reader has.

        `with replay.consume(32) as batch:` commits the batch at the end of the block, and releases it after an
        exception.

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
        return self._reader.take(rows, min_version, timeout_s)

    def sample(self, rows: PositiveInt, *, min_version: NonNegativeInt = 0) -> Columns:
        """Draw rows uniformly, with replacement, from all that are stored; this process keeps a copy of them.

        Raises:
            ValueError: there are no rows, or none of `min_version`; or they have different columns.
            CodecError, RedisUnavailableError: see `consume`.
        """
        if time.monotonic() - self._looked_s >= _LOOK_INTERVAL_S:
            self._server.retry(self._look, "read rows")
            self._looked_s = time.monotonic()
        found = self._mirror.sample(rows, self._rng, min_version)
        if found is None:
            raise ValueError(
                f"{self._server.client.run} holds no rows" + (f" of version {min_version}" if min_version else "")
            )
        return found

    def _look(self) -> None:
        client, stream = self._server.client, self._server.stream
        oldest = read_pairs(client.execute("XRANGE", stream, "-", "+", "COUNT", 1))
        self._mirror.forget_before(oldest[0][0] if oldest else None)
        while True:
            begin = b"(" + self._mirror.last
            found = read_pairs(client.execute("XRANGE", stream, begin, "+", "COUNT", _COUNT))
            for (entry, fields), data in zip(found, self._server.read_rows(found), strict=True):
                self._mirror.last = entry
                if data is not None:
                    self._mirror.append(entry, unpack(data), int(fields[b"v"]))
            if len(found) < _COUNT:
                return

    def state(self, reader: str | None = None) -> bytes | None:
        """Return the state of a reader's last commit; None if there is none. Default: this reader's."""
        return self._server.get(f"state:{reader or self._reader.name}")[0]

    def last_step(self, writer: str) -> int | None:
        """Return the step that a writer stored last, after which it continues when it is started again; None: none."""
        (found,) = self._server.get(f"step:{writer}")
        return None if found is None else int(found)

    def counts(self) -> dict[str, int]:
        """Return numbers of rows: `rows` that are stored; `put`, `consumed` and `stale` since the beginning."""
        names = ("rows", "put", "consumed", "stale")
        return {name: int(value or 0) for name, value in zip(names, self._server.get(*names), strict=True)}

    def __len__(self) -> int:
        return self.counts()["rows"]

    def close(self) -> None:
        """Close the connection, and end the Redis that this object started."""
        self._server.client.close()
        if self._redis is not None:
            self._redis.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
