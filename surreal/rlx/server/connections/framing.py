"""Frames of RLX and the opening handshake of WebSocket, cut from bytes."""

from __future__ import annotations

from http import HTTPStatus

from websockets.http11 import Request
from websockets.server import ServerProtocol

from surreal.rlx.server.connections.http import answer_get, may_connect
from surreal.rlx.server.hub import Hub

#: Bytes after the first two that hold a frame's length, by the value of its short length field.
_LENGTH_BYTES = {126: 2, 127: 8}


class FrameCutter:
    """Holds the bytes that no parser has had yet."""

    __slots__ = ("_data", "_position", "_rest")

    def __init__(self) -> None:
        self._data = b""
        self._position = 0
        self._rest = 0  # bytes of the last piece's frame that were not there yet

    @property
    def pending(self) -> int:
        """Bytes that are held."""
        return len(self._data) - self._position

    def add(self, data: bytes) -> None:
        """Add bytes that came in."""
        self._data = self._data[self._position :] + data
        self._position = 0

    def has_piece(self, *, is_open: bool) -> bool:
        """Whether there is something to take; half of a frame's head is nothing."""
        return self._end(is_open) > self._position

    def take(self, *, is_open: bool) -> bytes:
        """Take a frame, or as much of it as there is; before the connection is open, a line of its HTTP request."""
        start, end = self._position, self._end(is_open)
        self._position = min(end, len(self._data))
        self._rest = end - self._position
        return self._data[start : self._position]

    def _end(self, is_open: bool) -> int:
        """Return where the next piece ends, which may be beyond the bytes received so far."""
        data, start = self._data, self._position
        if start == len(data):
            return start
        if self._rest:
            return start + self._rest
        return start + _frame_bytes(data, start) if is_open else data.find(b"\n", start) + 1 or len(data)


def _frame_bytes(data: bytes, start: int) -> int:
    """Return the length of the frame that begins here; 0 if its head is incomplete."""
    if len(data) < start + 2:
        return 0
    mark = data[start + 1]
    num_length_bytes = _LENGTH_BYTES.get(mark & 0x7F, 0)
    head = 2 + num_length_bytes
    if len(data) < start + head:
        return 0
    length = int.from_bytes(data[start + 2 : start + head], "big") if num_length_bytes else mark & 0x7F
    return head + (4 if mark & 0x80 else 0) + length


def answer_request(protocol: ServerProtocol, request: Request, hub: Hub) -> None:
    """Send the answer by `protocol`, which is then open or about to end."""
    origins, hosts = request.headers.get_all("Origin"), request.headers.get_all("Host")
    if len(origins) > 1 or len(hosts) > 1:
        protocol.send_response(protocol.reject(HTTPStatus.BAD_REQUEST, "Origin and Host may be said once\n"))
    elif "Upgrade" not in request.headers:
        _answer_page(protocol, request, hub)
    elif not may_connect(next(iter(origins), None), next(iter(hosts), None), hub.settings.origins):
        text = "pages of this origin may not connect; see rlx.origins\n"
        protocol.send_response(protocol.reject(HTTPStatus.FORBIDDEN, text))
    else:
        protocol.send_response(protocol.accept(request))


def _answer_page(protocol: ServerProtocol, request: Request, hub: Hub) -> None:
    method = getattr(request, "method", "GET")  # what older releases of websockets let pass is always one
    answer = answer_get(request.path, hub.settings.static_dir, hub.status, pages_dir=hub.settings.pages_dir)
    if answer is None:
        response = protocol.reject(HTTPStatus.NOT_FOUND, "nothing here; RLX clients connect by TCP or WebSocket\n")
    elif method not in ("GET", "HEAD"):
        response = protocol.reject(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD\n")
        response.headers["Allow"] = "GET, HEAD"
    else:
        response = protocol.reject(answer.status, "")
        for name in ("Content-Type", "Content-Length"):
            del response.headers[name]
        response.headers["Content-Type"] = answer.content_type
        response.headers["Content-Length"] = str(len(answer.body))
        response.headers["Cache-Control"] = "no-cache"
        if answer.location is not None:
            response.headers["Location"] = answer.location
        response.body = answer.body
    if method == "HEAD":
        response.body = b""  # its length stays in the headers
    protocol.send_response(response)
