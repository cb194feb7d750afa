"""Everything that touches Redis: names, clients, codec, the sender, the queues, broadcast and telemetry.

The public names are imported on first use (PEP 562), so that a process which needs only `RedisClient` loads no torch
and no Arrow: `from surreal.distributed import RedisClient, ExpSender, TorchBroadcaster, TorchListener`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from surreal.distributed.broadcaster import TorchBroadcaster
    from surreal.distributed.client import RedisClient
    from surreal.distributed.listener import TorchListener
    from surreal.distributed.sender import ExpSender
    from surreal.distributed.server import EmbeddedRedis

__all__ = ["EmbeddedRedis", "ExpSender", "RedisClient", "TorchBroadcaster", "TorchListener"]

_MODULES = {
    "EmbeddedRedis": "server",
    "ExpSender": "sender",
    "RedisClient": "client",
    "TorchBroadcaster": "broadcaster",
    "TorchListener": "listener",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
