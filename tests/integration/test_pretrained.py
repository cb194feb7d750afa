"""Pretrained policies from an https server: its certificate is checked, and nothing leads to http."""

from __future__ import annotations

import http.server
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import surreal
from surreal.base.errors import CheckpointError
from surreal.cli.program import main
from surreal.plugins.clusters.redis.certificates import CertificateFiles, make_certificates
from surreal.run.build.saved_policy import installed_folder

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@contextmanager
def serving(answer: Answer, certificates: CertificateFiles | None = None) -> Iterator[str]:
    """Answer requests; yields the address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the library
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificates is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.server, certificates.server_key)
        # The handshake is left to the thread of the connection, so that a refused one ends nothing.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http{'' if certificates is None else 's'}://localhost:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def send(request: http.server.BaseHTTPRequestHandler, data: bytes, code: int = 200, **headers: str) -> None:
    request.send_response(code)
    for name, value in headers.items():
        request.send_header(name, value)
    request.end_headers()
    request.wfile.write(data)


def send_file(request: http.server.BaseHTTPRequestHandler) -> None:
    path = installed_folder() / Path(request.path).name
    if request.path.startswith("/release/") and path.exists():
        send(request, path.read_bytes())
    else:
        send(request, b"", 404)


@pytest.fixture
def certificates(tmp_path: Path, require_tool: Any) -> CertificateFiles:
    require_tool("openssl")
    return make_certificates(tmp_path / "certificates", [])


@pytest.fixture
def trusted(certificates: CertificateFiles, monkeypatch: pytest.MonkeyPatch) -> CertificateFiles:
    """Certificates of an authority that this process trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority))
    return certificates


def test_a_policy_is_loaded_and_played_from_an_https_address(
    trusted: CertificateFiles, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(send_file, trusted) as address:
        assert surreal.load("cartpole-ppo", policies=f"{address}/release").config.name == "cartpole-ppo"
        monkeypatch.setenv("SURREAL_POLICIES", f"{address}/release/")
        assert main(["play", "cartpole-ppo", "--episodes", "1", "--seed", "0"]) == 0
        assert "mean return 500 over 1 episodes" in capsys.readouterr().out
        with pytest.raises(CheckpointError, match=r"elsewhere/index\.json cannot be read: HTTP Error 404"):
            surreal.load("cartpole-ppo", policies=f"{address}/elsewhere")


def test_a_server_that_cannot_prove_its_name_is_refused(certificates: CertificateFiles) -> None:
    with (
        serving(send_file, certificates) as address,
        pytest.raises(CheckpointError, match=r"cannot be read: .*certificate verify failed"),
    ):
        surreal.load("cartpole-ppo", policies=f"{address}/release")


def test_a_redirection_may_lead_to_https_only(trusted: CertificateFiles) -> None:
    asked: list[str] = []

    def note(request: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(request.path)
        send_file(request)

    def redirect(request: http.server.BaseHTTPRequestHandler) -> None:
        send(request, b"", 302, Location=f"{target}{request.path}")

    with serving(redirect, trusted) as address:
        with serving(note, trusted) as target:
            assert surreal.load("cartpole-ppo", policies=f"{address}/release").version > 0
            assert asked == ["/release/index.json", "/release/cartpole-ppo.safetensors"]
        asked.clear()
        with (
            serving(note) as target,
            pytest.raises(CheckpointError, match=r"it redirects to http://localhost:.*, which is not https"),
        ):
            surreal.load("cartpole-ppo", policies=f"{address}/release")
        assert asked == []


def test_no_more_than_the_limit_is_read(trusted: CertificateFiles) -> None:
    sent = 0

    def flood(request: http.server.BaseHTTPRequestHandler) -> None:
        nonlocal sent
        request.send_response(200)
        request.end_headers()
        try:
            while sent < 1 << 30:
                sent += request.wfile.write(bytes(1 << 20))
        except OSError:  # the reader is gone
            pass

    with (
        serving(flood, trusted) as address,
        pytest.raises(CheckpointError, match=r"index\.json has more than 1,000,000 bytes"),
    ):
        surreal.load("cartpole-ppo", policies=address)
    assert sent < 1 << 30


def test_a_server_that_is_gone_is_named(trusted: CertificateFiles) -> None:
    with serving(send_file, trusted) as address:
        pass
    with pytest.raises(CheckpointError, match=r"https://localhost:\d+/index\.json cannot be read: .*refused"):
        surreal.load("cartpole-ppo", policies=address)
