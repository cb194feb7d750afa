"""The JavaScript client in Node: its own tests, run against a real server."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import gymnasium

ROOT = Path(__file__).parents[4]
TESTS = sorted((ROOT / "clients" / "js" / "test").glob("*.test.mjs"))
CART = gymnasium.make("CartPole-v1").observation_space


def test_the_tests_of_the_javascript_client_pass_and_none_is_skipped(require_tool: Any, serve: Any) -> None:
    node = require_tool("node", "nodejs")
    served = serve(observation_space=CART)
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout
    assert int(version.lstrip("v").partition(".")[0]) >= 20, f"the client needs Node 20, this is {version}"
    # From version 22 on there is a WebSocket without asking.
    flags = ["--experimental-websocket"] if version.startswith(("v20.", "v21.")) else []
    done = subprocess.run(
        [node, *flags, "--test", "--test-reporter=tap", *map(str, TESTS)],
        env={**os.environ, "RLX_SERVER": served.address},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    counts = dict(re.findall(r"^# (\w+) (\d+)$", done.stdout, re.MULTILINE))
    assert counts["fail"] == counts["skipped"] == counts["cancelled"] == "0", done.stdout[-3000:]
    assert int(counts["pass"]) > 40

    # What arrived is what was sent: three kinds of connections, twenty episodes each, cut by a limit.
    served.wait(lambda: len(served.ended("truncated")) >= 60)
    assert all(episode.rewards == [1.0] * 9 for episode in served.ended("truncated"))
    ended = [episode for episode in served.ended("terminated") if len(episode.rewards) == 3]
    assert [episode.rewards for episode in ended] == [[1.0, 1.0, 0.5]] * 3
    scalars = {name: (y, x) for method, name, y, x in served.metrics if method == "scalar" and name.startswith("js/")}
    assert set(scalars.values()) == {(2.5, 3)}
    assert len(scalars) == 3
    assert sum(episode.is_exploiting for episode in served.episodes) == 3
