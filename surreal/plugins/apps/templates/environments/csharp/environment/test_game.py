"""Tests of the environment, without a run: `pytest` in the app's folder. They need Mono."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.skipif(shutil.which("mcs") is None, reason="needs mcs")
def test_the_game_compiles_and_reports_a_missing_server() -> None:
    command = ["sh", HERE / "run.sh", "--rlx-server", "nowhere"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "error: nowhere is not an address; write host:port\n")
