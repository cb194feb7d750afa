"""Everything that touches Redis.

connection/    addresses, clients, clusters, retry policy, scripts, keys; the other folders know only this one
experience/    from an agent's steps to chunks in a stream, and from there to a replay
gradients/     from the agents that compute them to the parameter servers
parameters/    published by one learner, followed by every agent
calls.py       methods of the learner or parameter server, called by name
durable/       DurableReplay, for programs that have their own trainer
telemetry/     logs, metrics and heartbeats, into the run folder
server/        the embedded redis-server

Public names are imported on first use (PEP 562), so a process that needs only `RedisClient` loads neither torch nor
Arrow: `from surreal.distributed import RedisClient, ExpSender, TorchBroadcaster, TorchListener`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surreal.distributed.calls import CallServer, RemoteServer, remote
    from surreal.distributed.connection.client import RedisClient
    from surreal.distributed.durable import DurableReplay
    from surreal.distributed.experience.sender import ExpSender
    from surreal.distributed.parameters.broadcaster import TorchBroadcaster
    from surreal.distributed.parameters.listener import TorchListener
    from surreal.distributed.server.embedded import EmbeddedRedis
    from surreal.distributed.server.owners import temporary_run

__all__ = [
    "CallServer", "DurableReplay", "EmbeddedRedis", "ExpSender", "RedisClient", "RemoteServer", "TorchBroadcaster",
    "TorchListener", "remote", "temporary_run",
]  # fmt: skip

_MODULES = {
    "DurableReplay": "durable",
    "CallServer": "calls",
    "RemoteServer": "calls",
    "remote": "calls",
    "EmbeddedRedis": "server.embedded",
    "temporary_run": "server.owners",
    "ExpSender": "experience.sender",
    "RedisClient": "connection.client",
    "TorchBroadcaster": "parameters.broadcaster",
    "TorchListener": "parameters.listener",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
