"""Commands that find a run's Redis in a folder, and a folder of a stranger that names a server of the stranger's."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from surreal.base.errors import RedisUnavailableError
from surreal.cli.program import main
from surreal.config import load_config, to_yaml
from surreal.distributed.connection.address import FoundAddress
from surreal.distributed.connection.client import RedisClient
from surreal.plugins.dashboard.sources.live import LiveRun
from surreal.plugins.recorded.listing import list_runs
from surreal.plugins.runs.deleting import delete

SECRET = "the environment's password"


class Stranger(socketserver.ThreadingTCPServer):
    """Asks everyone for a password, and keeps what it is sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Asking)
        self.received = b""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class _Asking(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(4096):
            self.server.received += data  # type: ignore[attr-defined]
            self.request.sendall(b"-NOAUTH Authentication required.\r\n" * max(1, data.count(b"*")))


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    with Stranger() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def folder(stranger: Stranger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run's folder as a stranger wrote it; all of its addresses are the stranger's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SURREAL_REDIS", raising=False)
    monkeypatch.setenv("SURREAL_REDIS_USER", "agent")
    monkeypatch.setenv("SURREAL_REDIS_PASSWORD", SECRET)
    run = tmp_path / "runs" / "gift"
    run.mkdir(parents=True)
    config = load_config("cartpole-dqn", [f"redis.address={stranger.address}"])
    (run / "app.yaml").write_text(to_yaml(config))
    (run / "run.id").write_text("gift\n")
    (run / "redis.address").write_text(f"{stranger.address}\ngift\n")
    return run


@pytest.mark.parametrize("words", ["status", "stop", "metrics --once", "doctor", "top", "watch", "replay info"])
def test_a_folder_decides_nothing_about_where_the_password_goes(
    words: str, stranger: Stranger, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words.split(), "gift"]) != 0
    assert stranger.received and SECRET.encode() not in stranger.received
    assert words == "metrics --once" or "name it with --redis or $SURREAL_REDIS" in capsys.readouterr().err


def test_neither_do_the_configuration_of_a_run_that_is_over_the_dashboard_and_a_deletion(
    stranger: Stranger, folder: Path
) -> None:
    live = LiveRun(FoundAddress(stranger.address), "gift", title="", started=0.0, folder=folder)
    with pytest.raises(RedisUnavailableError):
        live.look()
    live.close()
    (folder / "redis.address").unlink()
    main(["doctor", str(folder)])
    (listed,) = list_runs([folder.parent])
    delete(listed)
    assert stranger.received and SECRET.encode() not in stranger.received


def test_who_names_the_host_sends_it_the_password(
    start_redis: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_redis(port=0, password=SECRET)
    monkeypatch.setenv("SURREAL_REDIS_PASSWORD", SECRET)
    monkeypatch.delenv("SURREAL_REDIS", raising=False)
    with (
        RedisClient(FoundAddress(server.address)) as client,
        pytest.raises(RedisUnavailableError, match="if you trust"),
    ):
        client.check_server()
    with RedisClient(FoundAddress(server.address, "127.0.0.1:1")) as client:
        client.check_server()
    monkeypatch.setenv("SURREAL_REDIS", server.address)
    with RedisClient(FoundAddress(server.address)) as client:
        client.check_server()
