"""The page's server."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from flask.testing import FlaskClient

from surreal.base.system.program import install_command
from surreal.cli.program import main
from surreal.plugins.dashboard.app import TOKEN_HEADER, Guard, make_app
from surreal.plugins.dashboard.sources import runs as module
from surreal.plugins.dashboard.sources.runs import Runs, key_of
from surreal.plugins.recorded.listing import ListedRun, list_runs, read_run
from surreal.run.process.run_folder import ADDRESS_NAME
from tests.plugins.dashboard.fakes import FakeLive
from tests.recorded import record_run

TOKEN = "a-token-of-the-test"
HERE = {"Origin": "http://localhost"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that goes on, in a Redis that a test makes up."""

    def running(*arguments: Any) -> list[ListedRun]:
        return [replace(run, status="running") for run in list_runs(*arguments)]

    monkeypatch.setattr(FakeLive, "made", [], raising=False)
    monkeypatch.setattr(module, "list_runs", running)
    folder = record_run(tmp_path / "runs" / "demo")
    (folder / ADDRESS_NAME).write_text("unix:///redis.sock\ndemo\n")
    videos = folder / "eval" / "videos"
    videos.mkdir()
    (videos / "round-0.mp4").write_bytes(bytes(range(100)))
    return folder


@pytest.fixture
def client(folder: Path) -> Iterator[FlaskClient]:
    runs = Runs([folder.parent], open_live=cast(Any, FakeLive))
    yield make_app(runs, Guard(TOKEN)).test_client()
    runs.close()


def test_the_page_loads_nothing_from_elsewhere_and_has_the_runs(client: FlaskClient) -> None:
    page = client.get("/").text
    assert "<title>Surreal</title>" in page
    assert "//cdn" not in page and 'src="http' not in page
    assert "/assets/dashboard.css" in page
    assert '"demo"' in client.get("/_dash-layout").text


def test_a_run_is_stopped_with_the_token_and_not_without(client: FlaskClient, folder: Path) -> None:
    address = f"/stop/{key_of(read_run(folder))}"
    refused = client.post(address, headers=HERE)
    assert (refused.status_code, "needs the token" in refused.json["answer"]) == (403, True)  # type: ignore[index]
    assert client.post(address, headers={TOKEN_HEADER: TOKEN}).status_code == 403  # from nowhere
    assert "<title>Surreal</title>" in client.get(address, headers={TOKEN_HEADER: TOKEN}).text  # only a POST does it
    assert FakeLive.made == []
    headers = HERE | {TOKEN_HEADER: TOKEN}
    assert client.post(address, headers=headers).json == {"answer": "The run was asked to stop."}
    assert client.post(address, headers=headers).json == {"answer": "The run is already ending."}
    assert FakeLive.made[0].stops == ["surreal dashboard"] * 2
    assert client.post("/stop/nothing", headers=headers).status_code == 404
    (folder / ADDRESS_NAME).unlink()
    over = client.post(address, headers=headers)
    assert (over.status_code, "demo is over" in over.json["answer"]) == (409, True)  # type: ignore[index]


def test_videos_come_in_parts_and_nothing_else_comes(client: FlaskClient, folder: Path) -> None:
    key = key_of(read_run(folder))
    with client.get(f"/videos/{key}/round-0.mp4") as answer:
        assert answer.data == bytes(range(100))
    with client.get(f"/videos/{key}/round-0.mp4", headers={"Range": "bytes=10-19"}) as part:
        assert (part.status_code, part.data) == (206, bytes(range(10, 20)))
    for path in (f"/videos/{key}/app.yaml", f"/videos/{key}/..%2f..%2fapp.yaml", "/videos/other/round-0.mp4"):
        assert "batch_size" not in client.get(path).text


def test_profiles_come_and_nothing_else_comes(client: FlaskClient, folder: Path) -> None:
    (folder / "profile.json.gz").write_bytes(b"timeline")
    (folder / "profile-of-another.json.gz").symlink_to(folder / "app.yaml")
    key = key_of(read_run(folder))
    with client.get(f"/profiles/{key}/profile.json.gz") as answer:
        assert answer.data == b"timeline"
    for name in ("app.yaml", "profile-of-another.json.gz", "..%2fdemo%2fapp.yaml"):
        assert "batch_size" not in client.get(f"/profiles/{key}/{name}").text


def test_wrong_use_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text("short")
    for arguments, message in (
        (["none"], "none is not a run's folder, name or id"),
        (["--token-file", str(token)], "other users may read"),
        (["--host", "no such host"], "--host is 'no such host'"),
        (["--port", "99999"], "less than or equal to 65535"),
    ):
        assert main(["dashboard", *arguments]) == 2
        assert message in capsys.readouterr().err


def test_a_port_that_is_taken_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["dashboard", str(tmp_path), "--port", str(taken.getsockname()[1])]) == 1
    assert "address already in use; another program listens there" in capsys.readouterr().err


def test_without_dash_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("surreal.plugins.dashboard.")]:
        if name != "surreal.plugins.dashboard.commands":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "dash", None)
    assert main(["dashboard"]) == 2
    assert install_command("dashboard") in capsys.readouterr().err
