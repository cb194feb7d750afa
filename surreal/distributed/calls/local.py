"""`LocalServer`: serves an agent whose learner is in the same process, as in the check before a run."""

from __future__ import annotations

from typing import Any

from surreal.distributed.calls.caller import RemoteServer
from surreal.distributed.calls.message import decode, encode
from surreal.distributed.calls.server import execute, remote_methods


class LocalServer(RemoteServer):
    """Calls the marked methods of an object at once; arguments and results are those that another process would get.

    Args:
        target: the object; or methods by name.
    """

    def __init__(self, target: object) -> None:
        self._methods = remote_methods(target)

    def call(self, method: str, /, *args: Any, timeout_s: float | None = None, **options: Any) -> Any:
        """Call a method.

        Raises:
            TypeError: no method has this name, it does not take these arguments, or a value cannot be encoded.
        """
        name, values, named = decode(encode([method, list(args), options]))
        return decode(encode(execute(self._methods, name, values, named)))
