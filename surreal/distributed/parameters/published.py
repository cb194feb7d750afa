"""Published parameters: their bytes (safetensors), and a reader for listeners and for a broadcaster that resumes.

Several parameter servers publish one part each, under separate names, one version after the other in step. So at any
moment, the newest version of one is the newest or the last but one of each other, and still exists in all of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

from redis.exceptions import ResponseError
from torch import Tensor

from surreal.base.errors import CodecError, DivergedError
from surreal.base.pytorch import name_not_finite
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.direct import MAX_PARTS, PARTS_AHEAD, DirectConnection, Memory
from surreal.distributed.connection.keys import PolicyKeys
from surreal.distributed.connection.retry import clear_error
from surreal.distributed.connection.tensor_bytes import Format, read_tensors, tensor_pieces

FORMAT = Format("surreal-parameters", "1", "parameters are")
#: Most bytes of parameters that a listener accepts by default.
DEFAULT_MAX_BYTES = 16 << 30
_FETCH_ATTEMPTS = 5
_HEAD = ("version", "epoch", "previous_version")
_ALL = (*_HEAD, "id", "message", "parts", "previous", "previous_parts", "data")
_ID = re.compile(rb"[A-Za-z0-9]{1,64}")
#: Parts that were read before it was known whether they are needed, by name.
_Ahead = Mapping[str, bytes | bytearray | None]


def encode_parameters(
    tensors: Mapping[str, Tensor], header: Mapping[str, Any] | None = None, into: Callable[[int], bytearray] = bytearray
) -> bytearray:
    """Encode named tensors, copying them from any device; they must not change meanwhile.

    The header is plain data that travels in the metadata, see `Module.header`. `into` gives memory of a size, bytes,
    once nothing is wrong with the parameters. Raises `ValueError` for a dtype that is not transported (complex,
    quantized, sparse), `DivergedError` for a parameter that is not finite, so no agent could use it.
    """
    flat = {name: tensor.detach().to("cpu") for name, tensor in tensors.items()}
    if name := name_not_finite(flat):
        raise DivergedError(f"parameters that are not finite are not broadcast: {name} holds nan or an infinity")
    try:
        whole = {name: tensor.contiguous() for name, tensor in flat.items()}
        pieces = tensor_pieces(whole, FORMAT, model=json.dumps(header or {}))
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"these parameters cannot be broadcast: {error}") from error
    memory, end = into(sum(map(len, pieces))), 0
    view = memoryview(memory)
    for piece in pieces:
        begin, end = end, end + len(piece)
        view[begin:end] = piece
    return memory


def decode_parameters(
    data: bytes | bytearray | memoryview, *, max_bytes: int = DEFAULT_MAX_BYTES
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Decode named CPU tensors and the model's header, or raise `CodecError`. Writable bytes become their memory."""
    if len(data) > max_bytes:
        raise CodecError(f"parameters are {len(data)} bytes; at most {max_bytes} are accepted")
    tensors, metadata = read_tensors(data, FORMAT, must_be_finite=True)
    try:
        model = json.loads(metadata.get("model", "{}"))
    except (TypeError, ValueError, RecursionError) as error:
        raise CodecError(f"parameters are corrupted: the model's header is not JSON: {error}") from None
    if not isinstance(model, dict):
        raise CodecError("parameters are corrupted: the model's header is not an object")
    return tensors, model


class PublishedState(NamedTuple):
    """The state of a policy in Redis, without the parameters."""

    version: int  #: 0: nothing is published
    age_s: float | None  #: since it was published; None if unknown
    is_held: bool  #: whether a broadcaster holds the policy's lease

    def __str__(self) -> str:
        """Such as `version 50, published 12 min ago`."""
        age = f", published {_show_age(self.age_s)} ago" if self.age_s is not None else ""
        return f"version {self.version}{age}"


class Published(NamedTuple):
    """One published version of a policy, still encoded."""

    version: int
    epoch: str
    message: str
    blobs: tuple[bytes | bytearray | memoryview, ...]  #: one per server

    def decode(self, max_bytes: int = DEFAULT_MAX_BYTES) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return all servers' tensors by name, and the model's header; raises as `decode_parameters`."""
        tensors: dict[str, Tensor] = {}
        header: dict[str, Any] = {}
        for blob in self.blobs:
            found, header = decode_parameters(blob, max_bytes=max_bytes)
            tensors.update(found)
        return tensors, header


@dataclass(eq=False, repr=False)
class PublishedReader:
    """Reads one policy's parameters. Every method may be repeated, so it can run under `client.retry`."""

    client: RedisClient
    keys: Sequence[PolicyKeys]
    max_bytes: int = DEFAULT_MAX_BYTES
    _: KW_ONLY
    reuses_memory: bool = False  #: whether each call of `newest` may overwrite the bytes that the last one returned

    def __post_init__(self) -> None:
        self.notices = [each.notice for each in self.keys]  #: channels that announce new versions
        self._memories = [Memory(self.max_bytes, is_reused=self.reuses_memory) for _ in self.keys]

    def is_held(self) -> bool:
        return any(self.client.execute("EXISTS", each.lease) for each in self.keys)

    def state(self) -> PublishedState:
        published_s = self.client.execute("HGET", self.keys[0].params, "published_s")
        is_held = self.is_held()
        try:
            version = str(self._common(self._snapshot(_HEAD))[0]).encode()
            number, published = _to_int(version, 0, 2**53), _to_int(published_s, 0, 2**53)
        except CodecError:  # reported when the parameters are read
            return PublishedState(0, None, is_held)
        if not number or not published:
            return PublishedState(number, None, is_held)
        now, _ = self.client.redis.time()  # the same clock
        return PublishedState(number, float(max(0, now - published)), is_held)

    def newest(self, is_known: Callable[[int, str], bool] | None = None, *, notice: bytes = b"") -> Published | None:
        """Read the newest parameters; None if there are none, or `is_known(version, epoch)` is true for them, which is
        asked before they are read. Raises `CodecError` if they are too large, or not parameters.

        The part that a `notice` names is read in the same round trip.
        """
        connection = DirectConnection(self.client)
        try:
            for _ in range(_FETCH_ATTEMPTS):
                for memory in self._memories:
                    memory.free()
                parts, ahead = self._read_hashes(connection, notice)
                version, epoch = self._common(parts)
                if version == 0 or (is_known is not None and is_known(version, epoch)):
                    return None
                servers = zip(self.keys, parts, self._memories, strict=True)
                blobs = [self._blob(connection, *server, version, ahead) for server in servers]
                found = tuple(blob for blob in blobs if blob is not None)
                if len(found) == len(parts):
                    message = parts[0]["message"] or b""
                    return Published(version, epoch, message.decode(errors="replace"), found)
                notice = b""
            return None  # replaced faster than this reads; the next notice is on its way
        finally:
            connection.release()

    def _read_hashes(self, connection: DirectConnection, notice: bytes) -> tuple[list[dict[str, bytes | None]], _Ahead]:
        """Read the hash of each part, and the bytes that a notice has named."""
        if len(self.keys) > 1:
            return self._snapshot(_ALL), {}
        _, told, count = (*notice.split(b" "), b"", b"", b"")[:3]
        names = part_names(self.keys[0], told.decode(), 1) if _ID.fullmatch(told) and count == b"1" else []
        reads = [("GET", name) for name in names]
        head = ("HMGET", self.keys[0].params, *_ALL)
        values, *found = connection.ask(head, *reads, into=self._memories[0])
        return [dict(zip(_ALL, values, strict=True))], dict(zip(names, found, strict=True))

    def _snapshot(self, fields: Sequence[str]) -> list[dict[str, bytes | None]]:
        if len(self.keys) == 1:
            values = self.client.execute("HMGET", self.keys[0].params, *fields)
            return [dict(zip(fields, values, strict=True))]
        pipeline = self.client.redis.pipeline()
        for keys in self.keys:
            pipeline.hmget(keys.params, fields)
        try:
            found = pipeline.execute()
        except ResponseError as error:  # the errors of a transaction come inside its reply
            raise clear_error(error) from error
        return [dict(zip(fields, values, strict=True)) for values in found]

    def _common(self, parts: Sequence[Mapping[str, bytes | None]]) -> tuple[int, str]:
        """Return the newest version that all parts have, and their epochs; (0, "") without one."""
        # A single server does not need the last but one, and may not have it in parts.
        fields = ("version", "previous_version")[: len(parts)]
        versions = [{_to_int(part[field], 0, 2**53) for field in fields} for part in parts]
        version = max(set[int].intersection(*versions), default=0)
        epoch = "+".join((part["epoch"] or b"").decode("ascii", errors="replace") for part in parts)
        return (version, epoch) if version else (0, "")

    def _blob(
        self,
        connection: DirectConnection,
        keys: PolicyKeys,
        part: Mapping[str, bytes | None],
        memory: Memory,
        version: int,
        ahead: _Ahead,
    ) -> bytes | bytearray | memoryview | None:
        """Return the bytes of a part's version; None if they were replaced, or Redis was emptied meanwhile."""
        if _to_int(part["version"], 0, 2**53) == version:
            publication, count, data = part["id"], _to_int(part["parts"], 0, MAX_PARTS), part["data"]
        else:
            publication, count, data = part["previous"], _to_int(part["previous_parts"], 1, MAX_PARTS), b""
        if publication is None or data is None:
            return None
        if count == 0:
            return data
        if not _ID.fullmatch(publication):
            raise CodecError(f"parameters have the impossible id {publication[:64]!r}")
        names = part_names(keys, publication.decode(), count)
        found = ahead.get(names[0]) if count == 1 else None
        return fetch_parts(connection, names, memory) if found is None else found


def part_names(keys: PolicyKeys, publication: str, count: int) -> list[str]:
    """Return the keys of a publication's parts, in order."""
    return [keys.part(publication, i) for i in range(count)]


def fetch_parts(
    connection: DirectConnection, names: Sequence[str], memory: Memory
) -> bytes | bytearray | memoryview | None:
    """Read parts into one block of memory; None if a newer publication replaced one. Raises `CodecError`."""
    block, size = memoryview(b""), 0

    def place(part_bytes: int) -> memoryview:
        nonlocal block, size
        if not size:  # the first part is as large as any
            block = memoryview(memory(min(part_bytes * len(names), memory.max_bytes)))
        if size + part_bytes > len(block):
            raise CodecError(f"{size + part_bytes} bytes are too many; there is room for {len(block)}")
        size += part_bytes
        return block[size - part_bytes : size]

    *first, last = parts = connection.ask(*(("GET", name) for name in names), into=place, most_ahead=PARTS_AHEAD)
    if None in parts:
        return None
    if not size or any(isinstance(part, bytes) for part in first):  # small ones are not in the block
        return b"".join(parts)
    if isinstance(last, bytes):
        place(len(last))[:] = last
    return block[:size]


def _to_int(value: bytes | None, low: int, high: int) -> int:
    try:
        number = int(value or b"0")
    except ValueError:
        number = low - 1
    if not low <= number <= high:
        raise CodecError(f"{str(value)[:40]} is not a number from {low} to {high}")
    return number


def _show_age(age_s: float) -> str:
    for unit, seconds in (("days", 86400), ("h", 3600), ("min", 60)):
        if age_s >= 2 * seconds:
            return f"{age_s / seconds:.0f} {unit}"
    return f"{age_s:.0f} s"
