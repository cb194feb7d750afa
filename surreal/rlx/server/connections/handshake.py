"""Answers the HTTP request that a connection begins with: it asks for a WebSocket, or for a page."""

from __future__ import annotations

from http import HTTPStatus

from websockets.http11 import Request
from websockets.server import ServerProtocol

from surreal.rlx.server.connections.http import answer_get, may_connect
from surreal.rlx.server.hub import Hub


def answer_request(protocol: ServerProtocol, request: Request, hub: Hub) -> None:
    """Let `protocol` send the answer; it is open after that, or about to end."""
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
