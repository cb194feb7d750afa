"""An RLX server that nobody has connected to: it says what it waits for, and is ready to serve."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from surreal.base.system.probe import READINESS, probe
from surreal.distributed import RedisClient
from surreal.distributed.telemetry.heartbeats import live_processes
from tests.warm_python import WarmPython, environment_of_a_user

TIMEOUT_S = 60.0


def test_a_server_without_sessions_is_ready(
    redis_server: Any, run_id: str, warm_python: WarmPython, tmp_path: Path
) -> None:
    health = tmp_path / "health"
    options = ["cartpole-rlx", "--run", run_id, "--redis", redis_server.address, "--port", "0", "--run-dir", "run"]
    with open(os.devnull, "r+b") as nothing:
        process = warm_python.start(
            ["-m", "surreal", "rlx-server", *options],
            folder=tmp_path,
            environment={**environment_of_a_user(), "SURREAL_HEALTH": str(health)},
            streams=(nothing.fileno(),) * 3,
        )
    client = RedisClient(redis_server.address, run=run_id)
    try:
        deadline, waits = time.monotonic() + TIMEOUT_S, []
        while "waiting for a client to begin a session" not in waits:
            assert process.poll() is None
            assert time.monotonic() < deadline
            waits = [wait for beat in live_processes(client) for wait in beat.waits_for]
            time.sleep(0.05)
        written_s = health.stat().st_mtime
        while health.stat().st_mtime == written_s:  # the heartbeat may be newer than the file
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert probe(str(health), "rlx-server", READINESS) == (True, "working")
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)
        client.delete_run()
        client.close()
