"""`GradientQueue`: gradients for a parameter server, in the order in which they were pushed.

    queue = GradientQueue(client)
    queue.expect(learner.parameter_groups())
    while True:
        gradient = queue.take(timeout_s=0.5)
        if gradient is not None and server.step(gradient):
            queue.tell_version(broadcaster.broadcast())

A gradient is removed from Redis before it is handed out, so none is applied twice, even if a process dies.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from torch import Tensor

from surreal.base.errors import CodecError, GroupChangedError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.direct import DirectConnection
from surreal.distributed.connection.retry import text_of
from surreal.distributed.gradients.encoding import Groups, assign_parameters, decode, flatten, unflatten
from surreal.distributed.gradients.group import ServerGroup
from surreal.distributed.gradients.store import GROUP_CHANGED, GradientHead, GradientStore, QueueEntry

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Reasons why a taken gradient is refused: damaged or of another model, too old by now, or its bytes are missing.
REASONS = ("broken", "stale", "gone")
_MAX_WAIT_MS = 500
_TELL_INTERVAL_S = 2.0


class Gradient(NamedTuple):
    """One push, as received by a server."""

    tensors: dict[str, dict[str, Tensor]]  #: this server's tensors by group and name, float32 on the CPU
    version: int  #: version of the parameters it was computed with
    env_steps: int  #: its own env steps
    global_step: int  #: env steps of the whole run when it was pushed, its own included: the same on all servers
    episodes: int  #: episodes that ended in its env steps
    updates: int  #: updates of its sender
    sender: str  #: the sender's incarnation


@dataclass(eq=False, repr=False)
class GradientQueue:
    """Takes gradients of one policy; used by one thread."""

    client: RedisClient  #: client of the server of the replay's first shard
    _: KW_ONLY
    policy: str = "default"
    shard: int = 0  #: number of this server, 0 .. shards - 1
    shards: int = 1
    #: versions that a taken gradient may be behind the newest announced one; None: no limit
    max_staleness: int | None = None
    max_bytes: int = 16 << 30  #: largest gradient that is accepted
    group: ServerGroup | None = None  #: the group of the servers, if there are several
    num_replay_shards: int = 1
    stop: threading.Event | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.shard < self.shards:
            raise ValueError(f"shard is {self.shard}; it must be 0 .. {self.shards - 1}")
        if self.shards > 1 and self.group is None:
            raise ValueError(f"{self.shards} servers need a group")
        self._store = GradientStore(self.client, self.policy, self.num_replay_shards)
        self._connection = DirectConnection(self._store.client)
        self._done: list[str] = []  # keys of the gradient that was read last
        self._token = secrets.token_hex(8)
        self._shapes: dict[str, tuple[int, ...]] | None = None
        self._version = 0
        self._global_step = 0
        self._next_tell_s = 0.0
        self._counts: Counter[str] = Counter()
        self._buffer = bytearray()

    @property
    def global_step(self) -> int:
        """Known env steps of the whole run; never decreases."""
        return self._global_step

    def expect(self, groups: Groups, counts: Groups | None = None) -> None:
        """Refuse gradients of names and shapes that no server has; `counts` as in `GradientSender`."""
        shapes = {name: tuple(tensor.shape) for name, tensor in flatten({**groups, **(counts or {})}).items()}
        mine = assign_parameters(groups, self.shards, counts)[self.shard]
        self._shapes = {name: shape for name, shape in shapes.items() if name in mine}

    def take(self, timeout_s: float) -> Gradient | None:
        """Take the next gradient; None if none came in time. Call this or `maintain` every few seconds.

        Its tensors are valid until the next call, which reuses their memory. The caller may change them. Raises
        `GroupChangedError` if a server of the group has restarted: join the group again.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            self.maintain()
            left_s = deadline_s - time.monotonic()
            wait_ms = min(max(1, int(1000 * left_s)), _MAX_WAIT_MS) if left_s > 0 else None
            look = partial(self._store.first, self._connection, self.shard, wait_ms, self._done)
            entry = self._retry(look, "look for gradients")
            self._done = []
            if entry is not None:
                gradient = self._take(entry)
                if gradient is not None:
                    return gradient
            if time.monotonic() >= deadline_s:
                return None

    def tell_version(self, version: int) -> None:
        """Announce the newest published version to the senders: staleness is measured from it."""
        self._version = max(self._version, version)
        self._next_tell_s = 0.0
        self.maintain()

    def on_global_step(self, step: int) -> None:
        """Set the run's env steps from a checkpoint: an empty Redis continues from there."""
        self._global_step = max(self._global_step, step)

    def maintain(self) -> None:
        """Restore data that Redis may have lost, if that is due; `take` does so as well, and raises the same."""
        if time.monotonic() < self._next_tell_s:
            return
        steps, _ = self._retry(lambda: self._store.tell(self._version, self._global_step), "tell the newest version")
        self._global_step = max(self._global_step, steps)
        self._next_tell_s = time.monotonic() + _TELL_INTERVAL_S
        if self.group is not None:
            self.group.check()

    def metrics(self) -> dict[str, float]:
        refused = {f"gradients/refused_{reason}_total": float(self._counts[reason]) for reason in REASONS}
        return {
            "gradients/taken_total": float(self._counts["taken"]),
            "gradients/taken_bytes_total": float(self._counts["bytes"]),
            **refused,
        }

    def run_metrics(self) -> dict[str, float]:
        """Read counts of the whole run from Redis: pushed, refused at the push by reason, waiting."""
        state = self._retry(self._store.state, "count gradients")
        waiting = self._retry(lambda: self._store.waiting(self.shard), "count gradients")
        refused = {name.removeprefix("refused:"): value for name, value in state.items() if name.startswith("refused:")}
        return {
            "gradients/run_pushed_total": float(state.get("pushed", 0)),
            "gradients/waiting": float(waiting),
            "gradients/waiting_bytes": float(state.get("live_bytes", 0)),
            **{f"gradients/run_refused_{reason}_total": float(value) for reason, value in refused.items()},
        }

    def close(self) -> None:
        self._connection.close()

    def _take(self, entry: QueueEntry) -> Gradient | None:
        """Remove a gradient from the queue and return it; None if it is refused, or another server's."""
        head, tensors, reason = None, None, ""
        try:
            head = GradientHead.decode(entry.head)
            if head.size > self.max_bytes:
                raise CodecError(f"a gradient is {head.size} bytes; at most {self.max_bytes} are accepted")
            limit = self.max_staleness
            reason = "stale" if limit is not None and self._version - head.version > limit else ""
        except CodecError as error:
            reason = _refuse(error)
        answer, data = "", None
        if head is not None and not reason:
            try:
                answer, data = self._read(entry, head)
                tensors = decode(data, self._shapes) if data is not None else None
                reason = "gone" if tensors is None else ""
            except CodecError as error:
                reason = _refuse(error)
        if not answer:
            answer, _ = self._remove(entry, head, None)
        if answer == "changed":
            raise GroupChangedError(GROUP_CHANGED)
        if answer != "ok":
            return None
        self._done = self._store.blocks(self.shard, entry, head)
        self._global_step = max(self._global_step, entry.global_step)
        reason = self._agree(reason)
        self._counts[reason or "taken"] += 1
        if reason or head is None or tensors is None:
            return None
        self._counts["bytes"] += head.size
        return Gradient(
            unflatten(tensors),
            head.version,
            head.env_steps,
            entry.global_step,
            head.episodes,
            head.updates,
            head.sender,
        )

    def _read(self, entry: QueueEntry, head: GradientHead) -> tuple[str, bytearray | None]:
        """Remove a gradient from the queue and read it, in one round trip; None if a part is missing."""
        if len(self._buffer) != head.size:
            self._buffer = bytearray(head.size)  # allocating is expensive, and all gradients of a model have one size
        buffer = self._buffer
        answer, parts = self._remove(entry, head, memoryview(buffer))
        if parts is None:
            return answer, None
        if size := head.size - sum(map(len, parts)):
            raise CodecError(f"a gradient is cut off: {size} of {head.size} bytes are missing")
        *first, last = parts
        if isinstance(last, bytes):
            buffer[head.size - len(last) :] = last
        is_in_place = all(isinstance(part, memoryview) for part in first)
        return answer, buffer if is_in_place else bytearray().join(parts)

    def _remove(
        self, entry: QueueEntry, head: GradientHead | None, buffer: memoryview | None
    ) -> tuple[str, list[bytes | memoryview] | None]:
        formation = self.group.formation if self.group is not None else ""
        take = partial(self._store.take, self._connection, self.shard, entry, head, self._token, formation)
        return self._retry(lambda: take(buffer=buffer), "take a gradient")

    def _agree(self, reason: str) -> str:
        """Refuse a gradient that any server of the group refuses."""
        if self.group is None:
            return reason
        return next((text_of(found) for found in self.group.gather(reason.encode()) if found), "")

    def _retry(self, operation: Callable[[], T], what: str) -> T:
        return self._store.client.retry(operation, what=what, stop=self.stop)


def _refuse(error: CodecError) -> str:
    logger.warning("a gradient is refused: %s", error)
    return "broken"
