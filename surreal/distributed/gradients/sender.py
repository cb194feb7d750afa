"""`GradientSender`: pushes gradients to the parameter servers, each counted once. One a process; used by one thread.

sender = GradientSender(client, max_staleness=8)
...
pushed = sender.push({"model": gradients}, version=model.version, env_steps=128)
learner.on_global_step(pushed.global_step)
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Literal, NamedTuple

from torch import Tensor

from surreal.distributed.connection.client import RedisClient

#: By group, then by the parameter's name.
Groups = Mapping[str, Mapping[str, Tensor]]


class Pushed(NamedTuple):
    """What became of a gradient."""

    status: str  #: ok; or why it was refused: stale, not_finite, full (with on_full "drop")
    global_step: int  #: env steps of the whole run, those of this push included
    newest_version: int  #: that the servers have published, as far as they told; 0 before the first


class GradientSender:
    """Pushes gradients of one policy.

    Args:
        client: of the run, at the server of the replay's first shard: the run's env steps are counted there.
        policy: name of the parameters.
        dtype: in which gradients travel. bfloat16 halves the bytes, and keeps 8 bits of each number's 24.
        shards: number of parameter servers, >= 1.
        parameters: `Learner.parameter_groups()`, which decide what goes to which server; needed if shards > 1.
        max_bytes: of gradients that wait in Redis, all servers together, >= 1. Raising it lets agents run ahead
            further, with gradients that are older when they are applied.
        max_staleness: versions that a gradient may be behind the newest published one, >= 0; None refuses none.
        on_full: "wait" until there is room, or "drop" the gradient; both are counted.
        wait_timeout_s: longest wait for Redis or for room, s.
        part_bytes: gradients larger than this go in parts, 1 to 256 MiB.
        num_replay_shards: of the run's replay, for the name of the shard where env steps are counted.
    """

    def __init__(
        self,
        client: RedisClient,
        *,
        policy: str = "default",
        dtype: Literal["float32", "bfloat16"] = "float32",
        shards: int = 1,
        parameters: Groups | None = None,
        max_bytes: int = 256 << 20,
        max_staleness: int | None = None,
        on_full: Literal["wait", "drop"] = "wait",
        wait_timeout_s: float = 300.0,
        part_bytes: int = 64 << 20,
        num_replay_shards: int = 1,
    ) -> None:
        raise NotImplementedError

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
            gradients: of any device, floating point; parameters that the loss does not depend on are left out.
            version: of the parameters they were computed with.
            env_steps: that they are of, and that nobody else counts; they count even if the gradient is refused.
            episodes: that ended in them.
            updates: that the sender has done on its own, this one included.
            stop: ends a wait with `StoppedError`.

        Raises:
            QueueFullError: there was no room for `wait_timeout_s`; nothing was counted.
            RedisUnavailableError: Redis did not answer for that long.
            StoppedError: `stop` was set while waiting.
        """
        raise NotImplementedError

    def metrics(self) -> dict[str, float]:
        """Counts since the start, as `gradients/...`."""
        raise NotImplementedError

    def close(self) -> None:
        """Drop the connection."""
        raise NotImplementedError
