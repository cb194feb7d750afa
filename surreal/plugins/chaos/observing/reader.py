"""`Reader`: follows a run's streams and published versions with a cursor of its own.

Entries and counts of a shard are read in one transaction: what Redis counts must be what it holds, to the step. So an
observer finds out what its senders and its learner would never tell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from redis.client import Pipeline

from surreal.base.errors import CodecError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import PolicyKeys
from surreal.distributed.experience.codec import segments_of
from surreal.distributed.experience.stream import Stream
from surreal.plugins.chaos.observing.sights import Entry, PolicySight, Segment, ShardSight

_START = b"0-0"
_META = ("epoch", "steps", "chunks", "counted")
_PARAMS = ("epoch", "version", "id")


class ShardReader:
    """Follows one shard.

    Args:
        stream: the shard.
        is_new: whether the run began while it is watched; of another, what was before the first look is not read.
    """

    def __init__(self, stream: Stream, *, is_new: bool) -> None:
        self.stream = stream
        self._cursor: bytes | None = _START if is_new else None
        self._epoch = ""

    def ask(self, pipeline: Pipeline) -> None:
        """Add two commands to a transaction, whose answers `take` gets."""
        pipeline.hmget(self.stream.keys.meta, _META)
        if self._cursor is None:
            pipeline.xrevrange(self.stream.keys.stream, count=1)
        else:
            pipeline.xread({self.stream.keys.stream: self._cursor})

    def take(self, meta: Sequence[bytes | None], answer: Any) -> ShardSight | None:
        """What was seen; None if Redis was emptied meanwhile, and the stream must be read from its start."""
        epoch = (meta[0] or b"").decode()
        if self._cursor is None:  # what was before is none of our business
            self._cursor, self._epoch = (answer[0][0] if answer else _START), epoch
            return self._sight(meta, ())
        if epoch != self._epoch:
            self._epoch, cursor = epoch, self._cursor
            # A cursor ahead of the clock would read nothing for ever.
            self._cursor = _START
            if epoch and cursor != _START:
                return None
        entries = answer[0][1] if answer and epoch else []
        if entries:
            self._cursor = entries[-1][0]
        return self._sight(meta, tuple(_entry(fields) for _, fields in entries))

    def _sight(self, meta: Sequence[bytes | None], entries: tuple[Entry, ...]) -> ShardSight:
        epoch, steps, chunks, counted = meta
        number = self.stream.shard
        return ShardSight(number, (epoch or b"").decode(), int(steps or 0), int(chunks or 0), bool(counted), entries)


class Reader:
    """Follows all of a run.

    Args:
        streams: its shards.
        parameters: the server of the parameters.
        policies: names under which parameters are published: of several servers, one each.
        is_new: as for `ShardReader`.
    """

    def __init__(
        self, streams: Sequence[Stream], parameters: RedisClient, policies: Sequence[PolicyKeys], *, is_new: bool
    ) -> None:
        self._shards: dict[int, list[ShardReader]] = {}
        self.clients: list[RedisClient] = []
        for stream in streams:
            if all(client is not stream.client for client in self.clients):
                self.clients.append(stream.client)
            self._shards.setdefault(id(stream.client), []).append(ShardReader(stream, is_new=is_new))
        self._parameters = parameters
        self._policies = policies

    def shards(self, client: RedisClient, and_then: Callable[[Pipeline], object] | None = None) -> list[ShardSight]:
        """Look at the shards of one server, all at the same instant.

        Args:
            client: one of `clients`.
            and_then: adds commands to the transaction, behind those that read.

        Raises:
            redis.RedisError: no answer; whether anything was done is not known.
        """
        left, sights = self._shards.get(id(client), []), list[ShardSight]()
        while True:
            pipeline = client.redis.pipeline()
            for shard in left:
                shard.ask(pipeline)
            if and_then is not None:
                and_then(pipeline)
            answers = pipeline.execute()
            found = [shard.take(*answers[2 * number : 2 * number + 2]) for number, shard in enumerate(left)]
            sights += [sight for sight in found if sight is not None]
            left = [shard for shard, sight in zip(left, found, strict=True) if sight is None]
            if not left:
                return sights
            and_then = None  # it was done

    def policies(self) -> list[PolicySight]:
        """What is published now; names under which nothing is are left out.

        Raises:
            redis.RedisError: no answer.
        """
        pipeline = self._parameters.redis.pipeline(transaction=False)
        for keys in self._policies:
            pipeline.hmget(keys.params, _PARAMS)
        found = zip(self._policies, pipeline.execute(), strict=True)
        return [
            PolicySight(keys.policy, (epoch or b"").decode(), int(version), (publication or b"").decode())
            for keys, (epoch, version, publication) in found
            if version
        ]


def _entry(fields: dict[bytes, bytes]) -> Entry:
    """What an entry says of its chunk; one that cannot be read has no steps, and the counts will not fit."""
    sender, _, sequence = fields.get(b"id", b"").decode("ascii", "replace").rpartition("-")
    found: tuple[Segment, ...] = ()
    with suppress(CodecError):
        segments = segments_of(fields.get(b"head", b""))
        found = tuple(Segment(env_slot, first, own) for _, own, env_slot, first, _ in segments)
    return Entry(sender, int(sequence) if sequence.isdigit() else 0, sum(each.own_steps for each in found), found)
