"""Plain HTTP on the server's port: is it alive, what it does, and the files of the demonstration; and which web pages
may connect.
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

from surreal.rlx.server.settings import is_loopback

_MAX_FILE_BYTES = 16 << 20
_PAGES = "/app"
#: Browsers run a module only under a type of JavaScript; some systems do not know `.mjs`.
_TYPES = {".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm"}


class Answer(NamedTuple):
    """An HTTP response."""

    status: HTTPStatus
    content_type: str
    body: bytes
    location: str | None = None  #: where the page is instead


def answer_get(
    path: str,
    static_dir: Path | None,
    status: Callable[[], Mapping[str, Any]] = dict,
    *,
    pages_dir: Path | None = None,
) -> Answer | None:
    """Answer a GET that is not for a WebSocket; None: there is no page at this path.

    Args:
        path: with its query.
        static_dir: folder of the files that are served; None: none are.
        status: tells what the server does.
        pages_dir: folder of those under `/app/`; None: they are looked for in `static_dir`.
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
    """Whether a web page may open a WebSocket here: any page that a user visits could try to reach this machine.

    Args:
        origin: the page's origin, as the browser states it; None: the client is not a browser.
        host: the `Host` header, the server's name as the page knows it.
        allowed: further origins; "*" allows all.
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
    # The same server, by its number: a name could be made to point here by anyone.
    return parts.netloc == host and _is_number(name)


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
