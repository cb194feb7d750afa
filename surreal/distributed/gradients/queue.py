"""`GradientQueue`: a parameter server's end of the gradients, in the order in which they were pushed.

    queue = GradientQueue(client)
    queue.expect(learner.parameter_groups())
    while True:
        gradient = queue.take(timeout_s=0.5)
        if gradient is not None and server.step(gradient):
            queue.tell_version(broadcaster.broadcast())

A gradient is removed from Redis before it is handed out: whatever dies, none is applied twice.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.gradients.group import ServerGroup


class Gradient(NamedTuple):
    """One push, as a server gets it."""

    tensors: dict[str, dict[str, Tensor]]  #: by group and name, float32 on the CPU: those of this server
    version: int  #: of the parameters it was computed with
    env_steps: int  #: that it is of
    global_step: int  #: env steps of the whole run when it was pushed, its own included: the same on all servers
    episodes: int  #: that ended in it
    updates: int  #: of its sender
    sender: str  #: incarnation


class GradientQueue:
    """Takes gradients of one policy; used by one thread.

    Args:
        client: as the senders'.
        policy: name of the parameters.
        shard: number of this server, 0 .. shards - 1.
        shards: number of servers.
        max_staleness: versions that a gradient may be behind the newest told version when it is taken; None refuses
            none.
        max_bytes: of one gradient; larger ones are refused.
        group: of the servers, if there are several.
        num_replay_shards: as the senders'.
        stop: ends every wait.
    """

    def __init__(
        self,
        client: RedisClient,
        *,
        policy: str = "default",
        shard: int = 0,
        shards: int = 1,
        max_staleness: int | None = None,
        max_bytes: int = 16 << 30,
        group: ServerGroup | None = None,
        num_replay_shards: int = 1,
        stop: threading.Event | None = None,
    ) -> None:
        raise NotImplementedError

    @property
    def global_step(self) -> int:
        """Env steps of the whole run, as the last call told."""
        raise NotImplementedError

    def expect(self, groups: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Refuse gradients whose names and shapes are not of these: all parameters, of all servers."""
        raise NotImplementedError

    def take(self, timeout_s: float) -> Gradient | None:
        """Take out the next gradient; None if none came in time. Call it, or `maintain`, every few seconds.

        Raises:
            GroupChangedError: a server of the group has restarted: join the group anew.
            RedisUnavailableError, StoppedError: Redis does not answer.
        """
        raise NotImplementedError

    def tell_version(self, version: int) -> None:
        """Let senders know the newest version that was published: staleness is measured from it."""
        raise NotImplementedError

    def metrics(self) -> dict[str, float]:
        """Counts of the run: taken, refused by reason, bytes and gradients that wait."""
        raise NotImplementedError
