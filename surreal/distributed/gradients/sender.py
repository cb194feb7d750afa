"""`GradientSender`: pushes gradients to the parameter servers, each counted once. One per process, used by one thread.

sender = GradientSender(client, max_staleness=8)
...
pushed = sender.push({"model": gradients}, version=model.version, env_steps=128)
learner.on_global_step(pushed.global_step)
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Literal

from annotated_types import Ge, Le
from redis.exceptions import OutOfMemoryError
from torch import Tensor

from surreal.base.errors import QueueFullError
from surreal.base.ranges import NonNegativeInt, PositiveInt, checked
from surreal.base.system.logs import WaitNotice
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.direct import MAX_PARTS, PART_BYTES
from surreal.distributed.connection.retry import delays_s, pause
from surreal.distributed.connection.wire import ScriptChannel
from surreal.distributed.gradients.encoding import Groups, are_finite, assign_parameters, cut, encode, flatten, to_wire
from surreal.distributed.gradients.store import GradientHead, GradientPush, GradientStore, Pushed, PushLimits

logger = logging.getLogger(__name__)

#: Reasons why a push is refused for good.
REASONS = ("stale", "not_finite", "full")
_MAX_PART_BYTES = 256 << 20
_MIN_WAIT_S, _MAX_WAIT_S = 0.0005, 0.02
_WHY_FULL = "the queue of gradients is full; is the parameter server running?"


@checked
@dataclass(eq=False, repr=False)
class GradientSender:
    """Pushes gradients of one policy."""

    client: RedisClient  #: client of the server of the replay's first shard: the run's env steps are counted there
    _: KW_ONLY
    policy: str = "default"  #: name of the parameters
    #: dtype of gradients on the wire. bfloat16 halves the bytes, and keeps 8 bits of each number's 24
    dtype: Literal["float32", "bfloat16"] = "float32"
    shards: PositiveInt = 1  #: number of parameter servers
    #: `Learner.parameter_groups()`, which determine the server of each gradient; needed if shards > 1
    parameters: Groups | None = None
    counts: Groups | None = None  #: tensors that travel with gradients to the first server, `FilterCounts.groups()`
    #: most bytes of gradients that wait in Redis, for all servers together. Raising it lets agents run further ahead,
    #: with gradients that are older when they are applied
    max_bytes: PositiveInt = 256 << 20
    #: versions that a gradient may be behind the newest published one; None: no limit
    max_staleness: NonNegativeInt | None = None
    on_full: Literal["wait", "drop"] = "wait"  #: "wait" until there is room, or "drop" the gradient; both are counted
    wait_timeout_s: float = 300.0  #: longest wait for Redis or for room, s
    part_bytes: Annotated[int, Ge(1), Le(_MAX_PART_BYTES)] = PART_BYTES  #: larger gradients go in parts of this size
    num_replay_shards: int = 1  #: number of the replay's shards, for the name of the shard where env steps are counted

    def __post_init__(self) -> None:
        if self.shards > 1 and self.parameters is None:
            raise ValueError(f"shards is {self.shards}; more than one need `parameters`")
        self.sender_id = uuid.uuid4().hex[:20]
        self._store = GradientStore(self.client, self.policy, self.num_replay_shards)
        self._channel = ScriptChannel(self._store.client)
        is_divided = self.shards > 1 and self.parameters is not None
        self._names = assign_parameters(self.parameters or {}, self.shards, self.counts) if is_divided else None
        self._limits = PushLimits(self.max_bytes, self.max_staleness, self.on_full == "drop")
        self._sequence = 0
        self._global_step = self._newest_version = 0
        self._owed_steps = 0  # of gradients that were dropped while Redis could not count them
        self._outcomes: Counter[str] = Counter()
        self._bytes = 0
        self._was_full = False  # then ask for room first, because a refusal costs all bytes
        self._wait_s = 0.0
        self._notice = WaitNotice(logger)
        self._rng = random.Random()

    def push(
        self,
        gradients: Groups,
        *,
        version: int,
        env_steps: int,
        episodes: int = 0,
        updates: int = 1,
        stop: threading.Event | None = None,
    ) -> Pushed:
        """Push the gradients of one loss; they must not change meanwhile.

        Args:
            gradients: floating point, on any device, without parameters that the loss does not depend on.
            version: version of the parameters they were computed with.
            env_steps: their env steps, which no other process counts. They count even if the gradient is refused.
            episodes: episodes that ended in these steps.
            updates: updates of this sender, this one included.
            stop: ends a wait with `StoppedError`.

        Raises:
            QueueFullError: there was no room for `wait_timeout_s`; nothing was counted.
            RedisUnavailableError: Redis did not answer for that long.
            StoppedError: `stop` was set while waiting.
        """
        tensors = to_wire(flatten(gradients), self.dtype)
        is_finite = are_finite(tensors)
        parts = self._cut(tensors) if is_finite else [[]]  # then none of it is stored
        self._sequence += 1
        push = GradientPush(
            gradient_id=f"{self.sender_id}-{self._sequence}",
            sender=self.sender_id,
            sequence=self._sequence,
            env_steps=env_steps + self._owed_steps,
            version=version,
            is_finite=is_finite,
            heads=[
                GradientHead(version, env_steps, episodes, updates, self.sender_id, len(part), _size(part)).encode()
                for part in parts
            ],
            parts=parts,
        )
        answer = self._send(push, stop)
        self._outcomes[answer.status] += 1
        self._bytes += sum(map(_size, parts)) if answer.status == "ok" else 0
        return answer

    def metrics(self) -> dict[str, float]:
        refused = {f"gradients/refused_{reason}_total": float(self._outcomes[reason]) for reason in REASONS}
        return {
            "gradients/pushed_total": float(self._outcomes["ok"]),
            "gradients/pushed_bytes_total": float(self._bytes),
            "gradients/wait_s_total": self._wait_s,
            **refused,
        }

    def close(self) -> None:
        self._channel.close()

    def _cut(self, tensors: Mapping[str, Tensor]) -> list[list[list[memoryview]]]:
        shares = [tensors]
        if self._names is not None:
            shares = [{name: each for name, each in tensors.items() if name in names} for names in self._names]
        encoded = [encode(share) for share in shares]
        return [cut(pieces, max(self.part_bytes, -(-_size([pieces]) // MAX_PARTS))) for pieces in encoded]

    def _send(self, push: GradientPush, stop: threading.Event | None) -> Pushed:
        started_s = time.monotonic()
        delays = delays_s(self._rng, _MIN_WAIT_S, _MAX_WAIT_S)
        has_waited = False
        size = sum(map(_size, push.parts))
        try:
            if self._was_full and push.is_finite and not self._has_room(size, stop):
                has_waited = True
                self._wait_for_room(size, delays, started_s, stop)
            while True:
                answer = self._try(push, stop)
                if answer is not None and answer.status != "wait":
                    self._owed_steps = 0
                    return answer
                if answer is None and self._limits.drops_when_full:
                    self._owed_steps = push.env_steps  # at maxmemory nothing can be counted
                    return Pushed("full", self._global_step, self._newest_version)
                has_waited = True
                self._wait_for_room(size, delays, started_s, stop)
        finally:
            self._notice.end()
            self._was_full = has_waited and not self._limits.drops_when_full
            if has_waited:
                self._wait_s += time.monotonic() - started_s

    def _try(self, push: GradientPush, stop: threading.Event | None) -> Pushed | None:
        """Push once; None if Redis is at its maxmemory."""
        try:
            answer = self._store.client.retry(
                lambda: self._store.push(self._channel, push, self._limits),
                what="push a gradient",
                stop=stop,
                timeout_s=self.wait_timeout_s,
            )
        except OutOfMemoryError:
            return None
        self._global_step = max(self._global_step, answer.global_step)
        self._newest_version = max(self._newest_version, answer.newest_version)
        return answer

    def _has_room(self, size: int, stop: threading.Event | None) -> bool:
        look = partial(self._store.has_room, size, self._limits.max_bytes)
        return self._store.client.retry(look, what="look for room", stop=stop)

    def _wait_for_room(
        self, size: int, delays: Iterator[float], started_s: float, stop: threading.Event | None
    ) -> None:
        self._notice.begin()
        for delay in delays:
            pause(stop, delay, "stopped while the parameter servers took no gradients")
            if self._has_room(size, stop):
                return
            waited_s = time.monotonic() - started_s
            if waited_s > self.wait_timeout_s:
                raise QueueFullError(f"no gradient was taken for {waited_s:.0f} s: {_WHY_FULL}")
            self._notice.tell("waiting to push a gradient, at most %.0f s: %s", self.wait_timeout_s, _WHY_FULL)


def _size(part: Sequence[Sequence[memoryview]]) -> int:
    return sum(len(piece) for pieces in part for piece in pieces)
