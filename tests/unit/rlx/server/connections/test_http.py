"""Files over HTTP, and which web pages may connect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from surreal.rlx.server.connections.http import answer_get, may_connect


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "site"
    (root / "sub").mkdir(parents=True)
    (root / "index.html").write_text("<p>home")
    (root / "sub" / "client.mjs").write_text("export {}")
    (tmp_path / "secret.txt").write_text("secret")
    (root / "link").symlink_to(tmp_path / "secret.txt")
    return root


def test_files_are_served_with_their_type(folder: Path) -> None:
    home = answer_get("/", folder)
    assert home is not None
    assert home.body == b"<p>home"
    assert home.content_type == "text/html; charset=utf-8"
    module = answer_get("/sub/client.mjs?v=1", folder)
    assert module is not None
    assert module.content_type.startswith("text/javascript")


@pytest.mark.parametrize(
    "path",
    ["/nope", "/../secret.txt", "/%2e%2e/secret.txt", "/sub/../../secret.txt", "/link", "/sub", "//etc/hosts", "/a%00"],
)
def test_nothing_else_is_served(folder: Path, path: str) -> None:
    assert answer_get(path, folder) is None


@pytest.mark.parametrize(("path", "location"), [("/sub", "./sub/"), ("/./sub", "./sub/"), ("/%73ub?a=1", "./sub/")])
def test_folder_without_its_slash_is_elsewhere(folder: Path, path: str, location: str) -> None:
    (folder / "sub" / "index.html").write_text("<p>sub")
    answer = answer_get(path, folder)
    assert answer is not None
    assert (answer.status, answer.location, answer.body) == (301, location, b"")
    home = answer_get("/sub/", folder)
    assert home is not None
    assert (home.status, home.body) == (200, b"<p>sub")


def test_pages_of_an_app_are_beside_the_client(folder: Path, tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.html").write_text("<p>mine")
    bodies = {path: answer_get(path, folder, pages_dir=pages) for path in ("/", "/app/", "/app/index.html", "/app")}
    assert {path: answer and answer.body for path, answer in bodies.items()} == {
        "/": b"<p>home",
        "/app/": b"<p>mine",
        "/app/index.html": b"<p>mine",
        "/app": b"",
    }
    moved = bodies["/app"]
    assert moved is not None
    assert (moved.status, moved.location) == (301, "./app/")
    for path in ("/app/../secret.txt", "/app/nope", "/application", "/app/..%2fsecret.txt"):
        assert answer_get(path, folder, pages_dir=pages) is None


def test_health_is_answered_without_files() -> None:
    health = answer_get("/health", None)
    assert health is not None
    assert health.status == 200
    assert answer_get("/", None) is None


def test_status_is_json() -> None:
    status = answer_get("/status.json", None, lambda: {"version": 5, "exploration": None})
    assert status is not None
    assert (status.status, status.content_type) == (200, "application/json")
    assert json.loads(status.body) == {"version": 5, "exploration": None}


@pytest.mark.parametrize(
    ("origin", "host", "allowed", "expected"),
    [
        (None, "x:1", (), True),
        ("http://localhost:8000", "127.0.0.1:7001", (), True),
        ("http://127.0.0.1:1", "127.0.0.1:7001", (), True),
        ("http://192.168.0.5:7001", "192.168.0.5:7001", (), True),
        ("http://192.168.0.5:80", "192.168.0.5:7001", (), False),
        ("https://evil.example", "127.0.0.1:7001", (), False),
        ("https://evil.example:7001", "evil.example:7001", (), False),
        ("https://good.example", "127.0.0.1:7001", ("https://good.example",), True),
        ("https://any.example", "127.0.0.1:7001", ("*",), True),
        ("null", "127.0.0.1:7001", (), False),
        ("http://[", "127.0.0.1:7001", (), False),
    ],
)
def test_pages_of_elsewhere_may_not_connect(
    origin: str | None, host: str, allowed: tuple[str, ...], expected: bool
) -> None:
    assert may_connect(origin, host, allowed) is expected


@pytest.mark.parametrize(
    "path", ["//[", "//[::1", "http://[", "/" + "a" * 5000, "/" + "a/" * 3000, "/%ff%fe", "//[?a]"]
)
def test_path_that_is_none_is_not_found(folder: Path, path: str) -> None:
    assert answer_get(path, folder) is None


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "http://[x]", "//[", "http://\u2100"])
def test_origin_that_is_none_may_not_connect(origin: str) -> None:
    assert not may_connect(origin, origin.partition("//")[2], ())
