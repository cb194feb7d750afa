"""Outbox: chunks on their way to a stream, kept until they are acknowledged.

The sender puts chunks in and pushes. A push does not wait for the answer to the chunk it sent last; the next push does.
A chunk that cannot be stored now stays at the front and is sent again under the same sequence number, so it is stored
exactly once, even if an answer is lost. While it waits for room or credit, the outbox asks for them without sending the
chunk. It also asks first for the next chunks, until one finds room and credit at once.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

from redis.exceptions import RedisError

from surreal.base.errors import ContractError, ReplayFullError
from surreal.base.system.logs import WaitNotice
from surreal.base.system.process import stream_bound_bytes
from surreal.distributed.connection.contract import describe_difference
from surreal.distributed.connection.retry import delays_s, is_transient, pause
from surreal.distributed.connection.wire import ScriptChannel
from surreal.distributed.experience.codec import Contract, EncodedChunk
from surreal.distributed.experience.stream import Appended, AppendOptions, Stream

logger = logging.getLogger(__name__)

#: Most env steps of the whole run between two chunks of a sender.
_MOST_STEPS = 1 << 30
_MIN_WAIT_S, _MAX_WAIT_S = 0.001, 0.08
#: Status of an append -> reason for messages.
_REASONS = {
    "full": "the replay is full; is a learner running, and does its replay fit into Redis' memory?",
    "credit": "the samples-per-insert limiter gives no credit; is the learner running?",
}


class _Pending(NamedTuple):
    sequence: int
    contract: Contract
    chunk: EncodedChunk


class Terms(NamedTuple):
    """Arguments of one push, see `Outbox.push`, and when it ends."""

    timeout_s: float
    is_limited: bool
    stop: threading.Event | None
    deadline_s: float


@dataclass(eq=False, repr=False)
class Outbox:
    """Stores chunks in one stream, in order, each once."""

    stream: Stream
    _: KW_ONLY
    drops_when_full: bool  #: drop a chunk (and count it) instead of waiting for room or credit
    max_stream_bytes: int  #: bound of the stream while no owner has set one and the server has no memory limit
    #: how long to wait for a server that does not answer, s, if a push may wait longer
    away_timeout_s: float = math.inf

    def __post_init__(self) -> None:
        self.sender_id = uuid.uuid4().hex[:20]
        self.global_step = 0  #: env steps of the whole run, at the last acknowledgment
        self.sent_through = (self.sender_id, 0)  #: name of the sender, and number of the last acknowledged chunk
        self._tried = 0  # sequence number of the last chunk that was sent
        self._bound_bytes: int | None = None
        self._sequence = 0
        self._pending: deque[_Pending] = deque()
        self._channel = ScriptChannel(self.stream.client)
        self._sends_contract = False
        self._asks_first = False  # for room and credit, because the last chunk had to wait for them
        self._steps = self._chunks = self._bytes = self._waits = 0
        self._dropped_steps = self._dropped_chunks = self._duplicates = 0
        self._wait_s = 0.0
        self._notice = WaitNotice(logger)
        self._rng = random.Random()

    def put(self, contract: Contract, chunks: Sequence[EncodedChunk]) -> None:
        for chunk in chunks:
            self._sequence += 1
            self._pending.append(_Pending(self._sequence, contract, chunk))

    def push(
        self, *, timeout_s: float, is_limited: bool, stop: threading.Event | None = None, waits_for_last: bool = True
    ) -> None:
        """Store all queued chunks.

        Args:
            timeout_s: how long to wait for Redis, for room and for credit, s.
            is_limited: whether to ask the samples-per-insert limiter.
            stop: ends the wait when it is set.
            waits_for_last: whether to wait for the last chunk's acknowledgment; otherwise it stays under way.

        Raises:
            ReplayFullError: there was no room or credit for that long.
            RedisUnavailableError: Redis did not answer for that long.
            ContractError: the stream holds experience of another kind.
            StoppedError: `stop` was set.
        """
        terms = Terms(timeout_s, is_limited, stop, time.monotonic() + timeout_s)
        while self._pending:
            if not self._channel.is_busy and self._begin(is_limited) and not waits_for_last and len(self._pending) == 1:
                return
            answer = self._finish(terms)
            if answer.status in ("full", "credit") and not self.drops_when_full:
                answer = self._wait_for_room(terms)
                self._asks_first = True
            if answer.status in ("ok", "duplicate"):
                self._acknowledged(self._pending.popleft(), answer)
            elif answer.status == "contract":
                self._sends_contract = True
            elif answer.status == "mismatch":
                self._repair_contract(answer.detail, stop)
            else:
                self._drop(self._pending.popleft())

    @property
    def has_answer(self) -> bool:
        """Whether the chunk in flight was answered, so that a push would not wait for it."""
        return self._channel.is_ready()

    def take_untried(self) -> list[tuple[Contract, EncodedChunk]]:
        """Remove and return the chunks that were never sent. Those that were sent may be stored, so they stay."""
        untried = [(pending.contract, pending.chunk) for pending in self._pending if pending.sequence > self._tried]
        self._pending = deque(pending for pending in self._pending if pending.sequence <= self._tried)
        return untried

    def __len__(self) -> int:
        return len(self._pending)

    def drop_all(self) -> None:
        self._channel.close()
        while self._pending:
            self._drop(self._pending.popleft())

    def close(self) -> None:
        self._channel.close()

    def metrics(self) -> dict[str, float]:
        return {
            "sender/steps_total": self._steps,
            "sender/chunks_total": self._chunks,
            "sender/bytes_total": self._bytes,
            "sender/waits_total": self._waits,
            "sender/wait_s_total": self._wait_s,
            "sender/duplicates_total": self._duplicates,
            "sender/dropped_chunks_total": self._dropped_chunks,
            "sender/dropped_steps_total": self._dropped_steps,
        }

    def _begin(self, is_limited: bool) -> bool:
        """Send the first chunk, and return whether it is in flight. If not, `_finish` sends it again."""
        if self._bound_bytes is None or self._asks_first or self.stream.is_local:
            return False  # `_append` first asks for the bound, or for room and credit
        try:
            self._tried = self._pending[0].sequence
            self.stream.begin_append(self._channel, self._pending[0].chunk, self._options(is_limited))
        except RedisError as error:
            if not is_transient(error):
                raise
            return False
        return True

    def _finish(self, terms: Terms) -> Appended:
        if self._channel.is_busy:
            try:
                return self.stream.finish_append(self._channel)
            except RedisError as error:
                if not is_transient(error):
                    raise
        return self._append(terms)

    def _append(self, terms: Terms) -> Appended:
        def append() -> Appended:
            if self._bound_bytes is None:
                self._bound_bytes = stream_bound_bytes(self.stream.maxmemory_bytes()) or self.max_stream_bytes
            chunk, options = self._pending[0].chunk, self._options(terms.is_limited)
            if self._asks_first and (refusal := self.stream.refusal(chunk, options)):
                return refusal
            self._asks_first = False  # if the answer is lost, only the append script knows whether the chunk is stored
            self._tried = options.sequence
            return self.stream.append(chunk, options)

        timeout_s = min(max(0.1, terms.deadline_s - time.monotonic()), self.away_timeout_s)
        return self.stream.client.retry(append, what="send experience", stop=terms.stop, timeout_s=timeout_s)

    def _options(self, is_limited: bool) -> AppendOptions:
        sequence, contract, _ = self._pending[0]
        bound = self._bound_bytes or 0
        return AppendOptions(self.sender_id, sequence, contract, self._sends_contract, is_limited, bound)

    def _wait_for_room(self, terms: Terms) -> Appended:
        """Ask repeatedly, with growing pauses, until the first chunk is stored or there is another answer."""
        counted_s, delays = time.monotonic(), delays_s(self._rng, _MIN_WAIT_S, _MAX_WAIT_S)
        self._waits += 1
        self._notice.begin()

        def count() -> None:
            # In small parts, so that the metrics show a wait while it lasts.
            nonlocal counted_s
            now = time.monotonic()
            self._wait_s += now - counted_s
            counted_s = now

        try:
            while True:
                pause(terms.stop, next(delays), "the sender was stopped while the replay was full")
                self._asks_first = True
                answer = self._append(terms)
                count()
                if answer.status not in ("full", "credit"):
                    return answer
                reason = _REASONS[answer.status]
                if time.monotonic() >= terms.deadline_s:
                    waited = f"no experience was taken for {terms.timeout_s:.0f} s: {reason}"
                    raise ReplayFullError(waited, waited_s=terms.timeout_s)
                self._notice.tell("waiting to send experience, at most %.0f s: %s", terms.timeout_s, reason)
        finally:
            count()
            self._notice.end()

    def _acknowledged(self, pending: _Pending, answer: Appended) -> None:
        chunk, self.sent_through = pending.chunk, (self.sender_id, pending.sequence)
        self._steps += chunk.own_steps
        self._chunks += 1
        self._bytes += chunk.content_bytes + len(chunk.head)
        self._duplicates += answer.status == "duplicate"
        self._sends_contract = False
        # After Redis was emptied, the shard counts from zero until its owner has added the former count.
        # No run takes so many steps between two chunks: then another client has written a larger number.
        if not self.global_step or answer.steps <= self.global_step + _MOST_STEPS:
            self.global_step = max(self.global_step, answer.steps)

    def _drop(self, pending: _Pending) -> None:
        self._dropped_chunks += 1
        self._dropped_steps += pending.chunk.own_steps

    def _repair_contract(self, stored: bytes, stop: threading.Event | None) -> None:
        """Replace the stream's contract if it is spoiled; raise if it is sound, and of other experience."""
        ours, client = self._pending[0].contract, self.stream.client
        if not self.stream.is_local:
            # Another sender may have replaced it since the append: what is stored now counts.
            stored = client.retry(
                lambda: self.stream.repair_contract(ours), what="look at the stream's contract", stop=stop
            )
        if stored == ours.as_bytes:
            return
        diff = describe_difference(Contract.from_bytes(stored).to_json(), ours.to_json())
        kind = "; ".join(diff[:3])
        message = f"the replay of run {client.run} holds experience of another kind ({kind}); use another run"
        raise ContractError(message, diff=diff)
