"""Checkpoints on S3: as in a folder, and with a server that fails, is slow, or is not there."""

from __future__ import annotations

import functools
import logging
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
import s3fs
import torch

from surreal.base.checkpoint import CheckpointStore, RunCheckpoints, open_checkpoint
from surreal.base.checkpoint.store import Round
from surreal.base.errors import CheckpointError, UnreadableError
from tests.s3_server import S3Server

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    server = S3Server()
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        yield server
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture
def bucket(server: S3Server) -> Iterator[str]:
    """A new bucket, of a server that works."""
    name = f"bucket-{uuid.uuid4().hex}"
    fsspec.filesystem("s3").mkdir(name)
    yield f"s3://{name}"
    server.is_refused = lambda method, query: False
    server.is_open.set()


@pytest.fixture
def own(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "run" / "checkpoints", keep=9)


def save(checkpoints: RunCheckpoints | CheckpointStore, step: int) -> str:
    return checkpoints.save(step, {"weight": torch.full((3,), float(step))}, {"kind": "learner"})


def wait_for_metric(checkpoints: RunCheckpoints, name: str, at_least: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while checkpoints.metrics()[f"learner/checkpoint_{name}"] < at_least:
        assert time.monotonic() < deadline, checkpoints.metrics()
        time.sleep(0.02)


def test_checkpoints_are_kept_found_and_set_aside_as_in_a_folder(bucket: str) -> None:
    store = CheckpointStore(f"{bucket}/run/checkpoints", keep=2, keep_best=1)
    assert store.newest_whole() is None
    rounds = [Round(1.0, 100, 9.0), Round(2.0, 200, 1.0)]
    checkpoints = RunCheckpoints(None, [store], rounds=lambda: rounds)
    for number, step in enumerate((100, 200, 300, 400), 1):
        save(checkpoints, step)
        wait_for_metric(checkpoints, "uploads_total", number)
    checkpoints.finish(TIMEOUT_S)
    assert store.steps() == [100, 300, 400]
    for word, step in (("latest", 400), ("best", 100)):
        found = open_checkpoint(f"{store.folder}/{word}")
        assert (found.step, found.tensors["weight"].tolist()) == (step, [float(step)] * 3)
    assert store.set_later_aside(300) == f"{store.folder}/set-aside-1"
    newest = store.newest_whole()
    assert newest is not None
    assert newest.step == 300
    assert CheckpointStore(f"{store.folder}/set-aside-1").steps() == [400]


def test_an_object_that_is_only_a_part_is_passed_over(bucket: str) -> None:
    store = CheckpointStore(f"{bucket}/run/checkpoints")
    save(store, 1)
    file_system = fsspec.filesystem("s3")
    whole = file_system.cat_file(store.path_of(1))
    file_system.pipe_file(store.path_of(2), whole[:-7])
    found = RunCheckpoints(None, [store]).newest_whole()
    assert found is not None
    assert found.step == 1


def test_a_multipart_upload_that_fails_leaves_nothing(
    server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_parts = functools.partialmethod(s3fs.S3FileSystem._pipe_file, chunksize=5 << 20)
    monkeypatch.setattr(s3fs.S3FileSystem, "_pipe_file", in_parts)
    s3fs.S3FileSystem.clear_instance_cache()  # what is there has the method already
    store = CheckpointStore(f"{bucket}/run/checkpoints")
    large = {"weight": torch.arange(3 << 20, dtype=torch.float32)}
    server.is_refused = lambda method, query: "partNumber=2" in query
    with pytest.raises(CheckpointError, match="could not be written: "):
        store.save(1, large, {})
    server.is_refused = lambda method, query: False
    assert store.names() == []
    file_system = fsspec.filesystem("s3")
    uploads = file_system.call_s3("list_multipart_uploads", Bucket=bucket.removeprefix("s3://"))
    assert not uploads.get("Uploads"), "its parts would be paid for"
    store.save(1, large, {})
    assert torch.equal(store.load("0000000001.safetensors").tensors["weight"], large["weight"])
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_server_that_fails_holds_up_nothing_and_gets_the_newest_when_it_works(
    server: S3Server, bucket: str, own: CheckpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = CheckpointStore(f"{bucket}/run/checkpoints", keep=9)
    checkpoints = RunCheckpoints(own, [elsewhere])
    server.is_refused = lambda method, query: method == "PUT"
    with caplog.at_level(logging.WARNING, logger="surreal"):
        for step in (1, 2, 3):
            save(checkpoints, step)
        wait_for_metric(checkpoints, "upload_failures_total", 1)
        assert (own.steps(), elsewhere.steps()) == ([1, 2, 3], [])
        server.is_refused = lambda method, query: False
        checkpoints.finish(TIMEOUT_S)
    newest = RunCheckpoints(None, [elsewhere]).newest_whole()
    assert newest is not None
    assert newest.step == 3
    assert len([record for record in caplog.records if "learning continues" in record.getMessage()]) == 1


def test_a_slow_server_holds_up_nothing_and_older_checkpoints_give_way(
    server: S3Server, bucket: str, own: CheckpointStore
) -> None:
    elsewhere = CheckpointStore(f"{bucket}/run/checkpoints", keep=9)
    checkpoints = RunCheckpoints(own, [elsewhere])
    server.is_open.clear()
    save(checkpoints, 1)
    assert server.held.acquire(timeout=TIMEOUT_S)
    for step in (2, 3, 4):
        save(checkpoints, step)
    assert checkpoints.metrics()["learner/checkpoint_uploads_replaced_total"] == 2
    assert elsewhere.steps() == []
    server.is_open.set()
    checkpoints.finish(TIMEOUT_S)
    assert (own.steps(), elsewhere.steps()) == ([1, 2, 3, 4], [1, 4])


def test_without_a_server_the_folder_is_enough_and_nothing_else_is_taken_for_a_new_run(
    server: S3Server, bucket: str, own: CheckpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = CheckpointStore(f"{bucket}/run/checkpoints")
    server.stop()
    try:
        checkpoints = RunCheckpoints(own, [elsewhere])
        save(checkpoints, 5)
        checkpoints.finish(1.0)
        assert f"{elsewhere.path_of(5)} did not arrive: " in caplog.text
        found = RunCheckpoints(own, [elsewhere]).newest_whole()
        assert found is not None
        assert found.path == own.path_of(5)
        with pytest.raises(UnreadableError, match=r"cannot be listed: .*Could not connect"):
            RunCheckpoints(None, [elsewhere]).newest_whole()
    finally:
        server.start()


def test_checkpoints_that_cannot_be_read_now_are_not_taken_for_none(server: S3Server, bucket: str) -> None:
    elsewhere = CheckpointStore(f"{bucket}/run/checkpoints")
    save(elsewhere, 5)
    server.is_refused = lambda method, query: method == "GET" and "list-type" not in query
    with pytest.raises(UnreadableError, match=r"0000000005.safetensors cannot be read: "):
        RunCheckpoints(None, [elsewhere]).newest_whole()


def test_a_bucket_that_is_not_there_is_named(bucket: str) -> None:
    store = CheckpointStore(f"{bucket}-of-nobody/run/checkpoints")
    with pytest.raises(CheckpointError, match=r"of-nobody/run/checkpoints/\d+.safetensors could not be written: "):
        save(store, 1)
