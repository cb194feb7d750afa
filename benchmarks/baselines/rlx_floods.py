"""Clients that flood a server, each in one way. `benchmarks.rlx` runs them in a separate process, through a pipe."""

from __future__ import annotations

import json
import socket
import struct
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from surreal.rlx.protocol.codec import encode
from surreal.rlx.protocol.framing import frame

_BLOCK_BYTES = 1 << 16
_UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
_TEXT, _CONTINUED, _PING = 0x81, 0x00, 0x89
_NUM_SESSIONS = 64


def _tcp(**message: Any) -> bytes:
    return frame(encode(message))


def _web(opcode: int, payload: bytes = b"") -> bytes:
    """A frame of a client; its mask changes nothing."""
    size = len(payload)
    head = struct.pack(">BB", opcode, 0x80 | size) if size < 126 else struct.pack(">BBH", opcode, 0xFE, size)
    return head + bytes(4) + payload


def _json(**message: Any) -> bytes:
    return _web(_TEXT, json.dumps(message).encode())


_INIT = _tcp(command="init")
_HUGE = b'{"command": "update", "state": [' + b"9" * 4000 + b'], "reward": ' + b"9" * 4000 + b".0}"

#: The depth that Python's parser allows, which a server refuses: it closes the connection, and the next one begins.
_NESTED = b'{"command": "update", "state": [' + b",".join([b"[" * 900 + b"]" * 900] * 16) + b"]}"

#: The first message of each flood, and the one that it repeats.
FLOODS: dict[str, tuple[bytes, bytes]] = {
    "nothing": (b"", b""),
    "unknown command": (_INIT, _tcp(command="fly")),
    "reset": (_INIT, _tcp(command="reset")),
    "empty update_metrics": (_INIT, _tcp(command="update_metrics", data=[])),
    "scalars": (_INIT, _tcp(command="update_metrics", data=[{"name": "n", "y": 1.5, "x": None}] * 20)),
    "histograms": (_INIT, _tcp(command="update_metrics", method="histogram", name="n", y=[0.5] * 1000)),
    "ping": (_UPGRADE, _web(_PING)),
    "half frames": (_INIT, b"9000:" + b"x" * 8999),
    "tiny fragments": (_UPGRADE + _web(0x01), _web(_CONTINUED)),
    "huge JSON numbers": (_UPGRADE + _json(command="init"), _web(_TEXT, _HUGE)),
    "deeply nested JSON": (_UPGRADE + _json(command="init"), _web(_TEXT, _NESTED)),
    "garbage bytes": (b"", bytes(range(256))),
    "oversized frames": (b"", b"999999999:"),
    "many sessions": (_UPGRADE + b"".join(_json(command="init", sid=sid) for sid in range(_NUM_SESSIONS)), b""),
}


def _again(name: str, state: list[float]) -> bytes:
    """Return a block of the message that a flood repeats."""
    data = FLOODS[name][1]
    if name == "many sessions":
        update = {"command": "update", "reward": 1, "state": state, "terminal": False}
        return b"".join(_json(sid=sid, **update) for sid in range(_NUM_SESSIONS))
    return data * max(1, _BLOCK_BYTES // max(1, len(data)))


def _flood(port: int, name: str, state: list[float], stop: threading.Event) -> None:
    block = _again(name, state)
    while block and not stop.is_set():
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as sock:
            reader = threading.Thread(target=_drain, args=(sock,), daemon=True)
            reader.start()
            sock.sendall(FLOODS[name][0])
            while not stop.is_set():
                sock.sendall(block)


def _drain(sock: socket.socket) -> None:
    with suppress(OSError):
        while sock.recv(_BLOCK_BYTES):
            pass


def run_floods(pipe: Connection) -> None:
    """Take (port, name, state) from the pipe, flood until the next item, and confirm it; None ends the process."""
    for port, name, state in iter(pipe.recv, None):
        stop = threading.Event()
        thread = threading.Thread(target=_flood, args=(port, name, state, stop))
        thread.start()
        pipe.send("on")
        pipe.recv()
        stop.set()
        thread.join()
        pipe.send("off")
