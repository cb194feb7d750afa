"""A run whose checkpoints are on S3 only, and that goes on where nothing else of it is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Workplace
from tests.e2e.trial import Trial
from tests.s3_server import S3Server


@pytest.fixture
def server() -> Iterator[S3Server]:
    server = S3Server()
    server.start()
    yield server
    server.stop()


def test_a_run_goes_on_from_s3_on_a_machine_that_has_nothing_else_of_it(workplace: Workplace, server: S3Server) -> None:
    files = server.files()
    files.mkdir("bucket")
    trial = Trial(workplace)
    stores = 'checkpoint.stores=["s3://bucket/surreal"]'
    first = trial.start(stores, "learner.max_updates=25", **server.environment)
    assert first.wait() == 0, first.output
    assert files.exists("bucket/surreal/trial/checkpoints/0000000025.safetensors")
    assert not (trial.folder / "checkpoints").exists()
    shutil.rmtree(trial.folder)
    second = trial.start(stores, "learner.max_updates=40", is_resumed=True, **server.environment)
    assert second.wait() == 0, second.output
    assert files.exists("bucket/surreal/trial/checkpoints/0000000040.safetensors")
    log = (trial.folder / "logs" / "learner.log").read_text()
    assert "restored s3://bucket/surreal/trial/checkpoints/0000000025.safetensors: 25 updates" in log
