"""A manifest is believed only whole and unchanged."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from surreal.base.errors import CodecError
from surreal.base.specs import ArraySpec, ObsSpec
from surreal.distributed.experience.data_contract import Contract
from surreal.replay.archive.manifest import ArchiveFile, Manifest, _checksum

FILES = (
    ArchiveFile("steps-00000.arrow", 10, "0" * 64, 2, 5, 6),
    ArchiveFile("steps-00001.arrow", 9, "1" * 64, 1, 2, 3),
)
ELSEWHERE = {"name": "../x.arrow", "bytes": 1, "sha256": "0" * 64, "chunks": 3, "steps": 7, "rows": 9}
MANIFEST = Manifest(
    Contract(ObsSpec((ArraySpec("", (4,), np.dtype(np.float32)),)), ArraySpec("action", (), np.dtype(np.int64))),
    run="run",
    created=1.5,
    surreal_version="1",
    file_format="arrow",
    senders=("a", "b"),
    files=FILES,
    chunks=3,
    steps=7,
    rows=9,
    stored_bytes=1000,
)


def signed(**changes: Any) -> bytes:
    """A manifest with other content whose checksum fits."""
    data = json.loads(MANIFEST.to_bytes()) | changes
    del data["checksum"]
    return json.dumps({**data, "checksum": _checksum(data)}).encode()


def test_a_manifest_comes_back() -> None:
    again = Manifest.from_bytes(MANIFEST.to_bytes())
    assert again == MANIFEST
    assert again.id == MANIFEST.id == json.loads(MANIFEST.to_bytes())["checksum"]
    assert Manifest.from_bytes(signed()) == MANIFEST


def test_every_cut_is_refused() -> None:
    text = MANIFEST.to_bytes()
    for length in range(len(text)):
        with pytest.raises(CodecError):
            Manifest.from_bytes(text[:length])


@pytest.mark.parametrize("change", [{"steps": 8}, {"run": "other"}, {"senders": []}, {"new": 1}])
def test_a_changed_value_is_refused(change: dict[str, Any]) -> None:
    data = json.loads(MANIFEST.to_bytes()) | change
    with pytest.raises(CodecError, match="checksum differs"):
        Manifest.from_bytes(json.dumps(data).encode())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "zip"}, "not that of a replay's archive"),
        ({"format_version": 2}, "archive format 2; this program reads 1"),
        ({"steps": 8}, "do not add up"),
        ({"rows": -1}, "rows is -1"),
        ({"chunks": True}, "chunks is True"),
        ({"file_format": "csv"}, "file_format"),
        ({"files": [ELSEWHERE]}, "x.arrow"),
        ({"files": [{"name": "steps-00000.arrow"}]}, "cannot be read"),
        ({"contract": {}}, "contract"),
        ({"contract": 3}, "cannot be read"),
    ],
)
def test_what_makes_no_sense_is_refused_though_its_checksum_fits(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CodecError, match=message):
        Manifest.from_bytes(signed(**change))


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"[" * 100_000, b"\xff"])
def test_other_text_is_refused(text: bytes) -> None:
    with pytest.raises(CodecError):
        Manifest.from_bytes(text)
