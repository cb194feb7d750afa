"""Whole lines of a file that grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal.plugins.recorded import files as module
from surreal.plugins.recorded.files import LineReader


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_a_file_that_is_not_there_yet_has_no_lines(path: Path) -> None:
    reader = LineReader(path)
    assert reader.read() == ([], False, True)
    append(path, b"one\n")
    assert reader.read() == ([b"one"], False, True)


def test_each_line_comes_once_and_only_when_it_is_whole(path: Path) -> None:
    reader = LineReader(path)
    append(path, b"one\ntw")
    assert reader.read().lines == [b"one"]
    assert reader.read().lines == []
    append(path, b"o\nthree\n")
    assert reader.read().lines == [b"two", b"three"]
    assert reader.read() == ([], False, True)


def test_only_new_bytes_are_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 8)
    append(path, b"1234567\n1234567\nend\n")
    reader = LineReader(path)
    assert reader.read() == ([b"1234567"], False, False)
    assert reader.offset == 8
    assert reader.read() == ([b"1234567"], False, False)
    assert reader.read() == ([b"end"], False, True)


def test_a_line_longer_than_a_block_is_passed_over_and_counted_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 8)
    append(path, b"one\n" + b"x" * 50 + b"\ntwo\n")
    reader, found = LineReader(path), []
    for _ in range(20):
        found += reader.read().lines
    assert (found, reader.skipped) == ([b"one", b"two"], 1)


@pytest.mark.parametrize("content", [b"one\n", b"other lines\nof more bytes\nthan before\n"])
def test_a_file_that_was_cut_back_or_replaced_is_read_anew(path: Path, content: bytes) -> None:
    append(path, b"one\ntwo\nthree\n")
    reader = LineReader(path)
    reader.read()
    path.write_bytes(content)
    assert reader.read() == (content.splitlines(), True, True)
    assert reader.read() == ([], False, True)
