"""What is left of a run's logs when its learner has ended comes into its folder all the same."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.collector import Collector
from surreal.distributed.telemetry.telemetry import Telemetry
from surreal.run.launch.collecting import LastCollection
from surreal.run.launch.starting import Spawner
from surreal.run.process.arguments import REDIS_VARIABLE


@pytest.fixture
def collection(redis_server: Any, run_id: str, tmp_path: Path) -> LastCollection:
    (tmp_path / "logs").mkdir()
    return LastCollection(Spawner(), run_id, tmp_path, {REDIS_VARIABLE: redis_server.address})


def test_lines_that_come_last_are_in_the_folder_when_it_has_finished(
    collection: LastCollection, redis_server: Any, run_id: str, tmp_path: Path
) -> None:
    with RedisClient(redis_server.address, run=run_id) as client:
        learners = Collector(client, tmp_path)
        learners.step(0.01)
        with collection:
            with Telemetry(client, "launcher", "launcher"):
                logging.getLogger("surreal.test").warning("the last word")
            learners.close()  # only now may another collector write
            collection.finish(lambda: False)
        assert "the last word" in (tmp_path / "logs" / "launcher.log").read_text()
        client.delete_run()


def test_abandoned_collection_leaves_no_process(collection: LastCollection) -> None:
    with collection:
        process = collection._process
        assert process is not None
    assert process.returncode is not None
