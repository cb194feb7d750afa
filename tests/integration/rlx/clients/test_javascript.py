"""The JavaScript client in Node: its own tests, run against a real server."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from surreal.rlx.protocol.errors import Limits
from surreal.rlx.server.settings import load_tls

ROOT = Path(__file__).parents[4]
TESTS = sorted((ROOT / "clients" / "js" / "test").glob("*.test.mjs"))
FOUR = spaces.Box(-np.inf, np.inf, (4,), np.float32)


def test_the_tests_of_the_javascript_client_pass_and_none_is_skipped(
    require_tool: Any, serve: Any, certificate: tuple[Path, Path]
) -> None:
    node = require_tool("node", "nodejs")
    served = serve(observation_space=FOUR, limits=Limits(), max_amend_s=60.0)
    secure = serve(observation_space=FOUR, tls=load_tls(*certificate))
    addresses = {"RLX_SERVER": served.address, "RLX_TLS_SERVER": f"localhost:{secure.server.port}"}
    done = subprocess.run(
        [node, "--test", "--test-reporter=tap", *map(str, TESTS)],
        env={**os.environ, **addresses, "RLX_CA": str(certificate[0])},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    counts = dict(re.findall(r"^# (\w+) (\d+)$", done.stdout, re.MULTILINE))
    assert counts["fail"] == counts["skipped"] == counts["cancelled"] == "0", done.stdout[-3000:]
    assert int(counts["pass"]) > 40

    # What arrived is what was sent: twenty episodes over each kind of connection, cut by a limit.
    kinds = {
        name.removeprefix("client/")
        for method, name, y, x in served.metrics
        if name.startswith("client/js/") and (method, y, x) == ("scalar", 2.5, 3)
    }
    assert {"js/TCP", "js/JSON WebSocket", "js/binary WebSocket"} <= kinds
    served.wait(lambda: len(served.ended("truncated")) >= 20 * len(kinds))
    assert all(episode.rewards == [1.0] * 9 for episode in served.ended("truncated"))
    ended = [episode for episode in served.ended("terminated") if len(episode.rewards) == 3]
    assert [episode.rewards for episode in ended] == [[1.0, 1.0, 0.5]] * len(kinds)
    assert sum(episode.is_exploiting for episode in served.episodes) == len(kinds)
