"""The contents of a stream, for people and scripts: `surreal replay info`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from surreal.base.errors import CodecError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.retry import parse_entry_id
from surreal.distributed.experience.shards import ReplayShards


@dataclass(frozen=True)
class ReplayInfo:
    """The current state of one shard of a run's replay."""

    run: str
    shard: int
    epoch: str  #: changes when Redis was emptied
    mode: str  #: window or consume; "" until the first owner fixes it
    steps: int  #: env steps of the run so far, on this shard
    live_steps: int  #: of the chunks that are there
    chunks: int
    live_bytes: int  #: accounted, what Redis needs for the chunks
    bytes_per_transition: float
    max_bytes: int | None  #: bound of the stream; None if no owner has set one
    samples: int  #: transitions sampled so far, as the owner stored them last
    owner: str | None  #: token of the learner that owns the stream; None if none does
    oldest_age_s: float | None  #: of the first chunk; None if there is none
    newest_age_s: float | None
    contract: dict[str, Any] | None  #: what the stream's experience is; None before the first chunk

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def replay_info(where: RedisClient | ReplayShards, shard: int = 0) -> ReplayInfo:
    """Look at a stream without a change; raises `CodecError` if its meta data make no sense, or `RedisError`."""
    stream = ReplayShards.of(where).stream(shard)
    keys, client = stream.keys, stream.client
    pipeline = client.redis.pipeline(transaction=False)
    pipeline.hgetall(keys.meta)
    pipeline.xlen(keys.stream)
    pipeline.xrange(keys.stream, count=1)
    pipeline.xrevrange(keys.stream, count=1)
    pipeline.get(keys.lease)
    pipeline.time()
    meta, chunks, first, last, owner, (seconds, microseconds) = pipeline.execute()
    now_s = int(seconds) + int(microseconds) * 1e-6
    try:
        numbers = {name: int(meta.get(name.encode(), 0)) for name in ("steps", "live_steps", "live_bytes", "samples")}
        max_bytes = int(meta[b"max_bytes"]) if b"max_bytes" in meta else None
        contract = json.loads(meta[b"contract"]) if b"contract" in meta else None
    except (ValueError, RecursionError) as error:
        raise CodecError(f"the replay of run {client.run} has meta data that cannot be read: {error}") from error
    return ReplayInfo(
        run=client.run,
        shard=shard,
        epoch=meta.get(b"epoch", b"").decode(errors="replace"),
        mode=meta.get(b"mode", b"").decode(errors="replace"),
        chunks=chunks,
        bytes_per_transition=numbers["live_bytes"] / max(numbers["live_steps"], 1),
        max_bytes=max_bytes,
        owner=owner.decode(errors="replace") if owner else None,
        oldest_age_s=_age_s(first, now_s),
        newest_age_s=_age_s(last, now_s),
        contract=contract,
        **numbers,
    )


def _age_s(entries: list[Any], now_s: float) -> float | None:
    """Age of the first of these entries: its id begins with the server's clock, in ms."""
    if not entries:
        return None
    milliseconds, _ = parse_entry_id(entries[0][0])
    return max(0.0, now_s - milliseconds / 1000)
