"""Outbox: chunks on their way to the stream, kept until they are acknowledged.

The sender puts chunks in and pushes. A push does not wait for the answer to the chunk it sent last: the next one does.
A chunk that cannot be stored now stays at the front and is tried again under the same sequence number, so that it is
stored exactly once whatever happened to the answer. While it waits for room or credit, the sender asks for them without
sending the chunk; so it does for the next chunk, until one finds them at once.
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
from typing import NamedTuple

from redis.exceptions import RedisError

from surreal.base.errors import ContractError, ReplayFullError, StoppedError
from surreal.base.liveness.wait_notice import WaitNotice
from surreal.base.system.memory import stream_bound_bytes
from surreal.distributed.connection.channel import ScriptChannel
from surreal.distributed.connection.contract import describe_difference
from surreal.distributed.connection.retry import is_transient
from surreal.distributed.experience.format.codec import Contract, EncodedChunk
from surreal.distributed.experience.stream import Appended, AppendOptions, Stream

logger = logging.getLogger(__name__)

#: Env steps of the whole run between two chunks of a sender, at most.
_MOST_STEPS = 1 << 30
_MIN_WAIT_S, _MAX_WAIT_S = 0.001, 0.08
#: Why a stream takes nothing.
_REASONS = {
    "full": "the replay is full; is a learner running, and does its replay fit into Redis' memory?",
    "credit": "the samples-per-insert limiter gives no credit; is the learner running?",
}


class _Pending(NamedTuple):
    sequence: int
    contract: Contract
    chunk: EncodedChunk


class Outbox:
    """Stores chunks in one stream, in order, each once.

    Args:
        stream: the shard.
        drops_when_full: drop a chunk (and count it) in place of waiting for room or credit.
        max_stream_bytes: bound of the stream while no owner has set one and the server has no memory limit.
        away_timeout_s: how long to wait for a server that does not answer, s, if that is less than a push may wait.
    """

    def __init__(
        self, stream: Stream, *, drops_when_full: bool, max_stream_bytes: int, away_timeout_s: float = math.inf
    ) -> None:
        self.stream = stream
        self.sender_id = uuid.uuid4().hex[:20]
        self.global_step = 0
        self.sent_through = 0  #: number of the last chunk that was acknowledged
        self._drops_when_full = drops_when_full
        self._max_stream_bytes = max_stream_bytes
        self._away_timeout_s = away_timeout_s
        self._tried = 0  # sequence number of the last chunk that was sent
        self._bound_bytes: int | None = None
        self._sequence = 0
        self._pending: deque[_Pending] = deque()
        self._channel = ScriptChannel(stream.client)
        self._sends_contract = False
        self._asks_first = False  # for room and credit, because the last chunk had to wait for them
        self._steps = self._chunks = self._bytes = self._waits = 0
        self._dropped_steps = self._dropped_chunks = self._duplicates = 0
        self._wait_s = 0.0
        self._notice = WaitNotice(logger)

    def put(self, contract: Contract, chunks: Sequence[EncodedChunk]) -> None:
        """Queue chunks behind those that wait."""
        for chunk in chunks:
            self._sequence += 1
            self._pending.append(_Pending(self._sequence, contract, chunk))

    def push(
        self, *, timeout_s: float, is_limited: bool, stop: threading.Event | None = None, waits_for_last: bool = True
    ) -> None:
        """Store everything that waits.

        Args:
            timeout_s: how long to wait for Redis, for room and for credit, s.
            is_limited: whether to ask the samples-per-insert limiter.
            stop: ends the wait when it is set.
            waits_for_last: whether to wait until the last chunk is acknowledged; otherwise it is under way.

        Raises:
            ReplayFullError: there was no room or credit for that long.
            RedisUnavailableError: Redis did not answer for that long.
            ContractError: the stream holds experience of another kind.
            StoppedError: `stop` was set.
        """
        deadline_s = time.monotonic() + timeout_s
        while self._pending:
            if not self._channel.is_busy and self._begin(is_limited) and not waits_for_last and len(self._pending) == 1:
                return
            answer = self._finish(deadline_s, is_limited, stop)
            if answer.status in ("full", "credit") and not self._drops_when_full:
                answer = self._wait_for_room(deadline_s, timeout_s, is_limited, stop)
                self._asks_first = True
            if answer.status in ("ok", "duplicate"):
                self._acknowledged(self._pending.popleft(), answer)
            elif answer.status == "contract":
                self._sends_contract = True
            elif answer.status == "mismatch":
                ours = self._pending[0].contract
                if self.stream.is_local or not self._mend(ours, stop):
                    raise self._mismatch(ours, answer.detail)
            else:
                self._drop(self._pending.popleft())

    @property
    def has_answer(self) -> bool:
        """Whether the chunk under way was answered: a push would not wait for it."""
        return self._channel.is_ready()

    def take_untried(self) -> list[tuple[Contract, EncodedChunk]]:
        """Take out what was never sent; of what was, nobody knows whether it is stored."""
        kept = [pending for pending in self._pending if pending.sequence <= self._tried]
        untried = [(pending.contract, pending.chunk) for pending in self._pending if pending.sequence > self._tried]
        self._pending = deque(kept)
        return untried

    def __len__(self) -> int:
        return len(self._pending)

    def drop_all(self) -> None:
        """Give up what waits, and count it."""
        self._channel.close()
        while self._pending:
            self._drop(self._pending.popleft())

    def close(self) -> None:
        """Drop the connection."""
        self._channel.close()

    def metrics(self) -> dict[str, float]:
        """Counts since the start: what was acknowledged, how long pushes waited, what was dropped."""
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
        """Send the first chunk; returns whether it is under way. If not, `_finish` sends it again."""
        if self._bound_bytes is None or self._asks_first or self.stream.is_local:
            return False  # the first chunk goes the slow way, which asks for the bound
        try:
            self._tried = self._pending[0].sequence
            self.stream.begin_append(self._channel, self._pending[0].chunk, self._options(is_limited))
        except RedisError as error:
            if not is_transient(error):
                raise
            return False
        return True

    def _finish(self, deadline_s: float, is_limited: bool, stop: threading.Event | None) -> Appended:
        if self._channel.is_busy:
            try:
                return self.stream.finish_append(self._channel)
            except RedisError as error:
                if not is_transient(error):
                    raise
        return self._append(deadline_s, is_limited, stop)

    def _append(self, deadline_s: float, is_limited: bool, stop: threading.Event | None) -> Appended:
        def append() -> Appended:
            if self._bound_bytes is None:
                self._bound_bytes = stream_bound_bytes(self.stream.maxmemory_bytes()) or self._max_stream_bytes
            chunk, options = self._pending[0].chunk, self._options(is_limited)
            if self._asks_first and (refusal := self.stream.refusal(chunk, options)):
                return refusal
            self._asks_first = False  # if the answer is lost, only the append script knows whether the chunk is stored
            self._tried = options.sequence
            return self.stream.append(chunk, options)

        timeout_s = min(max(0.1, deadline_s - time.monotonic()), self._away_timeout_s)
        return self.stream.client.retry(append, what="send experience", stop=stop, timeout_s=timeout_s)

    def _options(self, is_limited: bool) -> AppendOptions:
        pending = self._pending[0]
        return AppendOptions(
            sender=self.sender_id,
            sequence=pending.sequence,
            contract=pending.contract,
            sends_contract=self._sends_contract,
            is_limited=is_limited,
            default_bound_bytes=self._bound_bytes or 0,
        )

    def _wait_for_room(
        self, deadline_s: float, timeout_s: float, is_limited: bool, stop: threading.Event | None
    ) -> Appended:
        """Ask again and again, with growing pauses, until the first chunk is stored or there is another answer."""
        counted_s, pause_s = time.monotonic(), _MIN_WAIT_S
        self._waits += 1
        self._notice.begin()

        def count() -> None:
            # Bit by bit, so that a wait shows in the metrics while it lasts.
            nonlocal counted_s
            now = time.monotonic()
            self._wait_s += now - counted_s
            counted_s = now

        try:
            while True:
                pause = pause_s * random.uniform(0.5, 1.0)
                if stop is None:
                    time.sleep(pause)
                elif stop.wait(pause):
                    raise StoppedError("the sender was stopped while the replay took nothing")
                pause_s = min(2 * pause_s, _MAX_WAIT_S)
                self._asks_first = True
                answer = self._append(deadline_s, is_limited, stop)
                count()
                if answer.status not in ("full", "credit"):
                    return answer
                if time.monotonic() >= deadline_s:
                    raise _still_full(answer.status, timeout_s)
                self._notice.tell("waiting to send experience, at most %.0f s: %s", timeout_s, _REASONS[answer.status])
        finally:
            count()
            self._notice.end()

    def _acknowledged(self, pending: _Pending, answer: Appended) -> None:
        chunk, self.sent_through = pending.chunk, pending.sequence
        self._steps += chunk.own_steps
        self._chunks += 1
        self._bytes += chunk.content_bytes + len(chunk.head)
        self._duplicates += answer.status == "duplicate"
        self._sends_contract = False
        # After Redis was emptied the shard counts from zero until its owner has added what it knew.
        # No run takes so many steps between two chunks: another peer has written a larger number.
        if not self.global_step or answer.steps <= self.global_step + _MOST_STEPS:
            self.global_step = max(self.global_step, answer.steps)

    def _drop(self, pending: _Pending) -> None:
        self._dropped_chunks += 1
        self._dropped_steps += pending.chunk.own_steps

    def _mend(self, ours: Contract, stop: threading.Event | None) -> bool:
        return self.stream.client.retry(
            lambda: self.stream.mend_contract(ours), what="look at the stream's contract", stop=stop
        )

    def _mismatch(self, ours: Contract, stored: bytes) -> ContractError:
        diff = describe_difference(Contract.from_bytes(stored).to_json(), ours.to_json())
        run = self.stream.client.run
        message = f"the replay of run {run} holds experience of another kind ({'; '.join(diff[:3])}); use another run"
        return ContractError(message, diff=diff)


def _still_full(status: str, waited_s: float) -> ReplayFullError:
    return ReplayFullError(f"no experience was taken for {waited_s:.0f} s: {_REASONS[status]}", waited_s=waited_s)
