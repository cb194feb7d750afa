"""The private parts of redis-py that `wire` and `direct` use; no other file does."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection

from surreal.distributed.connection.wire import connection_class

PACKAGE = Path(__file__).parents[4] / "surreal"
#: Private attributes of a connection, and the classes that must have them.
PRIVATE = {"_sock", "_parser"}


@pytest.mark.parametrize("base", [Connection, SSLConnection, UnixDomainSocketConnection])
def test_redis_py_still_has_the_private_methods(base: type[AbstractConnection]) -> None:
    assert callable(base._connect), "wire._SlotMixin overrides it, to find the server before each connection"


def test_a_connection_still_has_its_socket_and_its_parser() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection: Any = connection_class(Connection)(
            host="127.0.0.1", port=server.getsockname()[1], driver_info=None, protocol=2
        )
        assert connection._sock is None, "it must not be connected yet"
        connection.connect()  # the kernel accepts it
        assert all(hasattr(connection, name) for name in PRIVATE)
        found = connection._sock
        assert isinstance(found, socket.socket)
        assert all(callable(getattr(found, name)) for name in ("sendall", "sendmsg", "recv", "recv_into"))
        assert isinstance(connection._parser.parse_error("ERR wrong"), redis.ResponseError)
        connection.disconnect()


def test_no_other_file_uses_them() -> None:
    pattern = re.compile(r"onnection\._(?:sock|parser|connect)\b|super\(\)\._connect\b")
    users = {path.name for path in PACKAGE.rglob("*.py") if pattern.search(path.read_text(encoding="utf-8"))}
    assert users == {"wire.py", "direct.py"}
