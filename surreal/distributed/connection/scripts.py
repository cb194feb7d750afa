"""The Lua scripts of `surreal/distributed/connection/lua`, read once and known by their SHA-1.

A script is atomic on its server, so each does one whole step of the data path. They run on Redis 6.2 and 7, and name
all their keys in KEYS (one hash tag each), so that they also run in a Redis Cluster.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Script:
    """A script's text and the digest that EVALSHA takes."""

    text: bytes
    sha1: str


@cache
def load_script(name: str) -> Script:
    """Read `lua/<name>.lua`.

    Raises:
        ValueError: there is no such script.
    """
    resource = files("surreal.distributed.connection") / "lua" / f"{name}.lua"
    if not name.isidentifier() or not resource.is_file():
        raise ValueError(f"there is no Lua script named {name!r} in surreal/distributed/connection/lua")
    text = resource.read_bytes()
    return Script(text, hashlib.sha1(text, usedforsecurity=False).hexdigest())
