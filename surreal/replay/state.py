"""Data of the turn of a replay's thread, where observations are, and the hooks that `surreal.replay.turn` calls."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeVar

from surreal.base.errors import ContractError
from surreal.base.ranges import Positive, checked
from surreal.base.types import Batch, TrajectoryBatch
from surreal.distributed.connection.retry import parse_entry_id
from surreal.distributed.experience.codec import Chunk, Contract
from surreal.distributed.experience.pointer_queue import ShardedPointerQueue
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.experience.stream import Stream
from surreal.replay.batches import B, ExpFetcherQueue
from surreal.replay.store.remote_rows import RemoteRows
from surreal.replay.store.rows import CompressedRows, MirroredRows, Mode, Observations, Place, rows_expected
from surreal.replay.store.storage import LiveChunks, Request, StoredChunk, TransitionStore
from surreal.replay.stream.keeper import StreamKeeper
from surreal.replay.stream.limiter import SamplesPerInsert

B_co = TypeVar("B_co", bound=Batch | TrajectoryBatch, covariant=True)

#: How often a server is asked for its time: between, clocks that are set and machines that sleep are noticed late.
_ASK_INTERVAL_S = 60.0


class ReplayHooks(Protocol[B_co]):
    """The settings and the decisions of a replay. All are used on its thread."""

    batch_size: int
    start_size: int
    n_step: int
    steps_per_sample: int
    drawn_once: int
    limiter: SamplesPerInsert | None

    @property
    def makes_own_batches(self) -> bool: ...
    @property
    def samples_single_rows(self) -> bool: ...
    def start_sample_condition(self) -> bool: ...
    def aggregate_batch(self, gathered: Any) -> B_co: ...
    def _insert(self, table: Chunk) -> range | None: ...
    def _sample(self, batch_size: int) -> Any: ...
    def _evict(self) -> int: ...
    def _make_store(self, contract: Contract, observations: Observations) -> TransitionStore: ...


@dataclass
class ReplayState(Generic[B]):
    """The data of one replay. Only its thread changes it; other threads use the two queues and the events."""

    streams: Sequence[Stream]  #: shards whose experience the replay uses
    owner: StreamKeeper  #: their leases and byte bounds, and the limiter
    place: ObservationPlace  #: decides where observations are kept
    pointer_queue: ShardedPointerQueue  #: decoded chunks; the enqueue threads fill it
    fetcher_queue: ExpFetcherQueue[B]  #: finished batches; the learner empties it
    stop: threading.Event  #: ends all waits
    wake: threading.Event  #: ends the pause of a turn that found nothing to do
    open_shards: set[int]  #: shards whose chunks may be inserted
    ages: Ages | None = None  #: finds the chunks that are too old; None: no chunk is
    store: TransitionStore | None = None  #: the built-in store; None until the first chunk arrives
    chunks: LiveChunks = field(default_factory=LiveChunks)  #: chunks in the store, oldest first
    asked: deque[Request] = field(default_factory=deque)  #: batches whose observations are on their way, oldest first
    at_once: int = 1  #: most batches that are sampled and gathered at once
    has_begun: bool = False  #: whether the streams were read to their ends once
    is_done: bool = False  #: whether the last turn has worked and left nothing to do, so that the next one may wait
    is_starved: bool = True  #: whether there is room for another batch, but too little experience
    inserted_steps: int = 0
    evicted_chunks: int = 0
    newest_version: int = -1

    @classmethod
    def open(
        cls,
        shards: ReplayShards,
        limiter: SamplesPerInsert | None,
        place: ObservationPlace,
        *,
        follow: Sequence[int] | None,
        max_age_s: float | None,
        prefetch: int | None,
        stop: threading.Event,
        **keeper: Any,
    ) -> Self:
        """Make the state of a replay that has inserted nothing, from the arguments of `Replay`, and of its keeper."""
        followed = sorted(set(range(len(shards)) if follow is None else follow))
        if not followed:
            raise ValueError("shards is empty; name at least one, or leave it out")
        streams, wake = shards.streams(followed), threading.Event()
        others = shards.streams([shard for shard in range(len(shards)) if shard not in followed])
        owner = StreamKeeper(streams, limiter, stop=stop, others=others, **keeper)
        pointer_queue = ShardedPointerQueue(
            streams,
            stop=stop,
            needs_blocks=place.needs_blocks,
            on_ready=wake.set,
            may_read=owner.owns if owner.consumes else lambda _: True,
        )
        ages = None if max_age_s is None else Ages(streams, max_age_s)
        fetcher_queue: ExpFetcherQueue[B] = ExpFetcherQueue(prefetch)
        return cls(streams, owner, place, pointer_queue, fetcher_queue, stop, wake, set(followed), ages)

    def metrics(self) -> dict[str, float]:
        store = self.store
        return {
            "replay/transitions_count": len(store.transitions) if store else 0,
            "replay/mirrored_bytes": store.observations.nbytes + store.transitions.nbytes if store else 0,
            "replay/gone_rows_total": store.observations.gone_rows if store else 0,
            "replay/ready_batches_count": len(self.fetcher_queue),
            "replay/inserted_steps_total": self.inserted_steps,
            "replay/evicted_chunks_total": self.evicted_chunks,
            "replay/refused_chunks_total": self.pointer_queue.refused_chunks,
            "replay/gone_chunks_total": self.pointer_queue.gone_chunks,
            "replay/newest_version": self.newest_version,
            **self.owner.metrics(),
        }


class Ages:
    """Finds chunks that are too old; used by one thread."""

    @checked
    def __init__(self, streams: Sequence[Stream], max_age_s: Positive) -> None:
        self._max_age_s = max_age_s
        self._streams = {stream.shard: stream for stream in streams}
        self._ahead_s: dict[int, float] = {}  # of each server's clock, before `time.monotonic`
        self._asked_s: dict[int, float] = {}

    def is_old(self, chunk: StoredChunk) -> bool:
        """Whether a chunk came too long ago, as far as its server's time is known."""
        now_s = time.monotonic()
        self._ask(chunk.shard, now_s)
        ahead_s = self._ahead_s.get(chunk.shard)
        milliseconds, _ = parse_entry_id(chunk.entry_id)
        return ahead_s is not None and now_s + ahead_s - milliseconds / 1000 > self._max_age_s

    def _ask(self, shard: int, now_s: float) -> None:
        stream = self._streams[shard]
        if stream.client.is_away or now_s - self._asked_s.get(shard, -_ASK_INTERVAL_S) < _ASK_INTERVAL_S:
            return
        self._asked_s[shard] = now_s
        server_s = stream.client.attempt(stream.server_time_s, what="tell its time")
        if server_s is not None:
            self._ahead_s[shard] = server_s - time.monotonic()


logger = logging.getLogger(__name__)


class ObservationPlace:
    """Decides, by the first of the threads that use it, where observations are; "auto" mirrors up to a bound."""

    def __init__(self, mode: Mode, *, capacity: int, mirror_max_bytes: int) -> None:
        self._mode = mode
        self._capacity = capacity
        self._mirror_max_bytes = mirror_max_bytes
        self._decided: tuple[int, Place] | None = None  # contract id, and the place

    def needs_blocks(self, contract: Contract) -> bool:
        """Whether observations are downloaded with their chunks."""
        return self._decide(contract) != "remote"

    def open(self, contract: Contract, streams: Sequence[Stream], stop: threading.Event) -> Observations:
        """Make the store of the observations; `streams` are those with remote ones, and `stop` ends waits for them."""
        place = self._decide(contract)
        if place == "remote":
            return RemoteRows(contract, streams, stop)
        kind = CompressedRows if place == "compressed" else MirroredRows
        return kind(contract, rows_expected(self._capacity))

    def _decide(self, contract: Contract) -> Place:
        if self._decided is None or self._decided[0] != contract.id:
            place = choose(self._mode, contract, capacity=self._capacity, mirror_max_bytes=self._mirror_max_bytes)
            self._decided = contract.id, place
        return self._decided[1]


def choose(mode: Mode, contract: Contract, *, capacity: int, mirror_max_bytes: int) -> Place:
    """Decide where observations are, from the contract and the capacity alone; `auto` mirrors at most
    `mirror_max_bytes`. Raises `ContractError` if rows would have to be fetched one by one from a stream that is
    compressed.
    """
    needed = rows_expected(capacity) * contract.obs.row_bytes
    fits = needed <= mirror_max_bytes
    if not needed:
        mode = "mirrored"  # observations of no bytes cannot be fetched
    chosen: Place = mode if mode != "auto" else "mirrored" if fits else "remote"
    if chosen == "remote" and contract.compression is not None:
        because = "" if mode == "remote" else f"; mirrored, they take {needed} bytes, more than {mirror_max_bytes}"
        raise ContractError(
            f"observations cannot be remote: the stream's blocks are compressed ({contract.compression}){because}; "
            + ("use observations: mirrored" if mode == "remote" else "raise mirror_max_bytes, lower capacity")
            + ", use observations: compressed, or send without compression"
        )
    logger.info(
        "observations are %s (%s): %d transitions take %.1f MiB of rows, the budget is %.1f MiB",
        chosen, mode, capacity, needed / 2**20, mirror_max_bytes / 2**20,
    )  # fmt: skip
    return chosen
