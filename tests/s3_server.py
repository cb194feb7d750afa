"""A real S3 server on a free port of this machine, moto's, that can be made to fail, to hold up, or to go away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import s3fs
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, make_server

_ERROR = b"<?xml version='1.0'?><Error><Code>InternalError</Code><Message>made to fail</Message></Error>"
_TIMEOUT_S = 60.0


class S3Server:
    """Objects outlive `stop` and `start`, as those of a real one do.

    Attributes:
        is_refused: asked for each request, with its method and query; true answers it with 500.
        is_open: cleared, uploads wait for it to be set.
        held: how many uploads have come since it was cleared.
    """

    def __init__(self) -> None:
        self.is_refused: Callable[[str, str], bool] = lambda method, query: False
        self.is_open = threading.Event()
        self.is_open.set()
        self.held = threading.Semaphore(0)
        self._application = DomainDispatcherApplication(create_backend_app)
        self._port = 0
        self._server: BaseWSGIServer | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find it, as AWS's own clients read it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }

    def files(self) -> s3fs.S3FileSystem:
        """What a test sees of it, whatever its own environment says."""
        names = {"key": "AWS_ACCESS_KEY_ID", "secret": "AWS_SECRET_ACCESS_KEY", "endpoint_url": "AWS_ENDPOINT_URL"}
        arguments = {name: self.environment[variable] for name, variable in names.items()}
        return s3fs.S3FileSystem(**arguments, use_listings_cache=False, skip_instance_cache=True)

    def start(self) -> None:
        """Listen, where it listened before."""
        self._server = make_server("127.0.0.1", self._port, self._answer, threaded=True)
        self._server.daemon_threads = True
        self._port = self._server.port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="s3", daemon=True).start()

    def stop(self) -> None:
        """Refuse connections."""
        self.is_open.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        if self.is_refused(method, environ["QUERY_STRING"]):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("500 Internal Server Error", [("Content-Type", "application/xml")])
            return [_ERROR]
        if method == "PUT" and not self.is_open.is_set():
            self.held.release()
            self.is_open.wait(_TIMEOUT_S)
        answer: Iterable[bytes] = self._application(environ, start_response)
        return answer
