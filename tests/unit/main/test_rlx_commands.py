"""What the RLX commands find out before they connect or listen, in one clear sentence."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from surreal.checkpoint import save_checkpoint
from surreal.config import load_config
from surreal.errors import ConfigError
from surreal.main import rlx_client
from surreal.main.process.registry import plain_config
from surreal.main.rlx_server import serve_policy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--server", "foo://x"], "argument --server: 'foo://x' is no address; write host:port, or a URL: rlx"),
        (["--server", "127.0.0.1:99999"], "argument --server: '127.0.0.1:99999' is no address: Port out of range"),
        (["--timeout", "0"], "argument --timeout: 0 is not > 0"),
        (["--timeout", "nan"], "argument --timeout: nan is not > 0"),
    ],
    ids=range(4),
)
def test_wrong_arguments_of_a_client(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        rlx_client.main(["CartPole-v1", "--server", "127.0.0.1:9", *arguments])
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rlx.port=70000", r"^rlx\.port is 70000; it must be <= 65535 \(--set\)$"),
        ("rlx.timeout_s=-1.0", r"^rlx\.timeout_s is -1\.0; it must be > 0\.0 \(--set\)$"),
        ("rlx.bogus=1", r"^rlx\.bogus is not a setting \(--set\); rlx has servers, "),
    ],
)
def test_wrong_settings_of_a_served_policy(tmp_path: Path, override: str, message: str) -> None:
    path = tmp_path / "best.safetensors"
    content = {"kind": "policy", "version": 1, "config": plain_config(load_config("cartpole-rlx"))}
    save_checkpoint(path, {}, content, step=1)
    with pytest.raises(ConfigError, match=message):
        serve_policy(path, [override], threading.Event())
