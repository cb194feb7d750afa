"""The bytes before the messages of a WebSocket: pieces for its parser, the opening request, and plain HTTP.

Over HTTP, clients ask whether the server is alive and what it does, and get the files of the demonstration.
"""

from __future__ import annotations

import ipaddress
import json
import mimetypes
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from websockets.http11 import Request
from websockets.server import ServerProtocol

from surreal.rlx.server.hub import Hub
from surreal.rlx.server.settings import is_loopback

#: Bytes after the first two that hold a frame's length, by the value of its short length field.
_LENGTH_BYTES = {126: 2, 127: 8}
_MAX_FILE_BYTES = 16 << 20
_PAGES = "/app"
#: Browsers run a module only under a type of JavaScript; some systems do not know `.mjs`.
_TYPES = {".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm"}


class FrameCutter:
    """Holds the bytes that no parser has had yet."""

    __slots__ = ("_data", "_position", "_rest")

    def __init__(self) -> None:
        self._data = b""
        self._position = 0
        self._rest = 0  # bytes of the last piece's frame that were not there yet

    @property
    def pending(self) -> int:
        return len(self._data) - self._position

    def add(self, data: bytes) -> None:
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


class Answer(NamedTuple):
    """An HTTP response."""

    status: HTTPStatus
    content_type: str
    body: bytes
    location: str | None = None  #: where the page is instead


def answer_get(
    path: str, static_dir: Path | None, status: Callable[[], Mapping[str, Any]] = dict, *, pages_dir: Path | None = None
) -> Answer | None:
    """Answer a GET for a path, with its query, that is not for a WebSocket; None: there is no page.

    Files are served from `static_dir`, those under `/app/` from `pages_dir` if it is given; `status` tells what the
    server does.
    """
    path = unquote(path.partition("?")[0])
    if path == "/health":
        return Answer(HTTPStatus.OK, "text/plain; charset=utf-8", b"ok\n")
    if path == "/status.json":
        return Answer(HTTPStatus.OK, "application/json", f"{json.dumps(dict(status()))}\n".encode())
    folder, inside = static_dir, path
    if pages_dir is not None and (path == _PAGES or path.startswith(f"{_PAGES}/")):
        folder, inside = pages_dir, path.removeprefix(_PAGES)
    if folder is None or "\0" in path:
        return None
    try:
        return _answer_file(folder, inside, path)
    except (OSError, ValueError):  # a name that no file can have
        return None


def _answer_file(folder: Path, inside: str, path: str) -> Answer | None:
    root = folder.resolve()
    file = (root / inside.lstrip("/")).resolve()
    is_folder = file.is_dir()
    if is_folder:
        file = file / "index.html"
    # What a path with dots or a link leads to may be anywhere.
    if not file.is_relative_to(root) or not file.is_file() or file.stat().st_size > _MAX_FILE_BYTES:
        return None
    name = path.rpartition("/")[2]
    if is_folder and name:
        # Relative to this address: `//name/` would be another server.
        return Answer(HTTPStatus.MOVED_PERMANENTLY, "text/plain; charset=utf-8", b"", f"./{quote(name)}/")
    kind = _TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return Answer(HTTPStatus.OK, f"{kind}; charset=utf-8" if kind.startswith("text/") else kind, file.read_bytes())


def may_connect(origin: str | None, host: str | None, allowed: Sequence[str]) -> bool:
    """Whether a web page may open a WebSocket here: any page that a user visits could try to reach this machine. The
    browser states the page's origin, None without a browser, and the host as the page knows it; "*" allows all.
    """
    if origin is None or "*" in allowed or origin in allowed:
        return True
    try:
        parts = urlsplit(origin)
        name = parts.hostname or ""
    except ValueError:
        return False
    if is_loopback(name):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:  # a name could be made to point here by anyone
        return False
    return parts.netloc == host
