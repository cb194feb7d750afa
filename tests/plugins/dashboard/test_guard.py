"""Who may see the dashboard, and who may stop runs with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from flask import Flask, request
from flask.testing import FlaskClient

from surreal.base.errors import ConfigError
from surreal.plugins.dashboard.app import TOKEN_HEADER, Guard, read_token
from surreal.rlx.server.settings import is_loopback

TOKEN = "a-token-of-the-test"
HERE = {"Origin": "http://localhost:8600", "Host": "localhost:8600"}


def client_of(host: str) -> FlaskClient:
    server, guard = Flask("test"), Guard(TOKEN, host=host, port=8600)
    server.add_url_rule("/", "page", lambda: "the page")
    server.add_url_rule("/change", "change", lambda: str(guard.may_change(request)), methods=["POST"])
    guard.protect(server, ["'sha256-abc'"])
    return server.test_client()


@pytest.mark.parametrize("host", ["localhost:8600", "127.0.0.1:8600", "[::1]:8600"])
def test_everybody_on_this_machine_may_look(host: str) -> None:
    answer = client_of("127.0.0.1").get("/", headers={"Host": host})
    assert (answer.status_code, answer.text) == (200, "the page")
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert "script-src 'self' 'sha256-abc'" in answer.headers["Content-Security-Policy"]


def test_a_name_that_was_made_to_lead_here_is_refused() -> None:
    for name in ("evil.example:8600", "[", "[x]:8600"):
        assert client_of("127.0.0.1").get("/", headers={"Host": name}).status_code in (400, 403)


@pytest.mark.parametrize(
    "origin", [None, "null", "http://evil.example", "http://localhost:9999", "http://[", "http://[x]"]
)
def test_another_site_may_not_change_anything_even_with_the_token(origin: str | None) -> None:
    headers = {"Host": "localhost:8600", TOKEN_HEADER: TOKEN} | ({} if origin is None else {"Origin": origin})
    assert client_of("127.0.0.1").post("/change", headers=headers).status_code == 403


def test_what_changes_something_needs_the_token() -> None:
    client = client_of("127.0.0.1")
    assert client.post("/change", headers=HERE).text == "False"
    assert client.post("/change", headers=HERE | {TOKEN_HEADER: TOKEN + "x"}).text == "False"
    assert client.post("/change", headers=HERE | {TOKEN_HEADER: "\u00e4"}).text == "False"
    assert client.post("/change", headers=HERE | {TOKEN_HEADER: TOKEN}).text == "True"


def test_the_address_with_the_token_gives_a_cookie_that_scripts_and_other_sites_do_not_get() -> None:
    client = client_of("127.0.0.1")
    assert client.get("/?token=wrong", headers=HERE).status_code == 403
    answer = client.get(f"/?token={TOKEN}", headers=HERE)
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith(f"surreal_dashboard_8600={TOKEN};")
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert client.post("/change", headers=HERE).text == "True"


def test_elsewhere_than_on_this_machine_everything_needs_the_token() -> None:
    client = client_of("0.0.0.0")
    refused = client.get("/")
    assert (refused.status_code, "needs its token" in refused.text) == (401, True)
    assert client.get("/assets/x").status_code == 401
    assert client.get("/", headers={TOKEN_HEADER: TOKEN}).text == "the page"
    client.get(f"/?token={TOKEN}")
    assert client.get("/").text == "the page"


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.0.0.5", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False),
     ("192.168.1.2", False), ("my-host", False)],
)  # fmt: skip
def test_addresses_of_this_machine_alone_are_known(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected


def test_a_token_is_kept_in_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = read_token(path)
    assert (path.stat().st_mode & 0o777, len(token) >= 32) == (0o600, True)
    assert read_token(path) == token
    assert read_token(None) != read_token(None)
    path.chmod(0o640)
    with pytest.raises(ConfigError, match=r"other users may read .*; run: chmod 600"):
        read_token(path)


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 20, b"two words and\nmore lines"])
def test_what_is_no_token_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="token"):
        read_token(path)
