from __future__ import annotations

import json
from pathlib import Path

import pytest

from surreal.distributed.telemetry.run_files import (
    LOCK_NAME,
    MAX_PROCESSES,
    STATE_NAME,
    CollectorProgress,
    RunFiles,
    Seen,
)
from tests.full_disk import files_end_at


def opened(folder: Path) -> RunFiles:
    files = RunFiles(folder)
    assert files.acquire()
    return files


def test_what_is_committed_is_there_and_known_to_the_next_writer(tmp_path: Path) -> None:
    files = opened(tmp_path / "run")
    progress = CollectorProgress("5-1", "server", {"p": Seen(4, (2,))})
    files.commit({"logs/a.log": b"one\n", "metrics.jsonl": b"{}\n"}, progress)
    files.commit({"logs/a.log": b"two\n"}, progress)
    files.release()
    again = opened(tmp_path / "run")
    assert again.progress == progress
    assert "logs/a.log" in again
    assert (tmp_path / "run/logs/a.log").read_bytes() == b"one\ntwo\n"


def test_what_a_killed_writer_left_half_done_is_cut_off(tmp_path: Path) -> None:
    files = opened(tmp_path)
    files.commit({"a.log": b"one\n"}, CollectorProgress("1-0"))
    state = (tmp_path / STATE_NAME).read_bytes()
    files.commit({"a.log": b"two\n", "b.log": b"new\n"}, CollectorProgress("2-0"))
    files.release()
    # As if it had been killed after it wrote the files: the last state is the one written ahead for the new file.
    ahead = json.loads(state)
    ahead["sizes"]["b.log"] = 0
    (tmp_path / STATE_NAME).write_text(json.dumps(ahead))
    again = opened(tmp_path)
    assert again.progress.cursor == "1-0"
    assert (tmp_path / "a.log").read_bytes() == b"one\n"
    assert (tmp_path / "b.log").read_bytes() == b""


def test_a_file_that_is_long_enough_is_moved_aside_and_begun_again(tmp_path: Path) -> None:
    files = opened(tmp_path)
    for number in range(7):
        files.rotate(lambda path: 12 if path == "a.log" else 1000)
        files.commit({"a.log": b"line %d\n" % number, "b.log": b"x"}, CollectorProgress(f"{number}-0"))
    assert (tmp_path / "a.log.older").read_bytes() == b"line 4\nline 5\n"
    assert (tmp_path / "a.log").read_bytes() == b"line 6\n"
    assert not (tmp_path / "b.log.older").exists()


def test_a_writer_that_was_killed_right_after_it_moved_a_file_repeats_nothing(tmp_path: Path) -> None:
    files = opened(tmp_path)
    files.commit({"a.log": b"line 1\n"}, CollectorProgress("1-0"))
    files.rotate(lambda _: 1)  # killed before the next commit
    files.release()
    again = opened(tmp_path)
    assert "a.log" not in again  # so that it is recorded again before it is written
    again.commit({"a.log": b"line 2\n"}, CollectorProgress("2-0"))
    assert (tmp_path / "a.log.older").read_bytes() + (tmp_path / "a.log").read_bytes() == b"line 1\nline 2\n"


def test_a_new_file_is_recorded_before_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = opened(tmp_path)

    def die(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "_append", die)
    with pytest.raises(KeyboardInterrupt):
        files.commit({"a.log": b"one\n"}, CollectorProgress("1-0"))
    state = json.loads((tmp_path / STATE_NAME).read_text())
    assert (state["cursor"], state["sizes"]) == ("0-0", {"a.log": 0})


@pytest.mark.parametrize(
    ("size", "room"), [(4000, 2000), (4, 20)], ids=["in the middle of a file", "with the record of what was written"]
)
def test_a_full_disk_counts_nothing_as_written(tmp_path: Path, size: int, room: int) -> None:
    files, more = opened(tmp_path), b"x" * size
    files.commit({"a.log": b"one\n"}, CollectorProgress("1-0"))
    for new in ({}, {"b.log": b"new\n"}):
        with files_end_at(room), pytest.raises(OSError, match="too large"):
            files.commit({"a.log": more, **new}, CollectorProgress("2-0"))
        assert files.progress.cursor == "1-0"
        assert (tmp_path / "a.log").read_bytes() == b"one\n"
        assert json.loads((tmp_path / STATE_NAME).read_text())["cursor"] == "1-0"
        assert list(tmp_path.glob(".*.tmp")) == []
    files.commit({"a.log": more, "b.log": b"new\n"}, CollectorProgress("2-0"))
    assert (tmp_path / "a.log").read_bytes() == b"one\n" + more
    assert (tmp_path / "b.log").read_bytes() == b"new\n"


def test_a_second_writer_waits_until_the_first_is_gone(tmp_path: Path) -> None:
    first, second = opened(tmp_path), RunFiles(tmp_path)
    assert not second.acquire()
    first.commit({"a.log": b"one\n"}, CollectorProgress("1-0"))
    first.release()
    assert second.acquire()
    assert second.acquire()
    assert second.progress.cursor == "1-0"
    assert (tmp_path / LOCK_NAME).exists()


def test_a_shortened_or_missing_file_goes_on_where_it_is(tmp_path: Path) -> None:
    files = opened(tmp_path)
    files.commit({"a.log": b"one\n", "b.log": b"one\n"}, CollectorProgress("1-0"))
    (tmp_path / "a.log").unlink()
    files.commit({"a.log": b"two\n"}, CollectorProgress("2-0"))
    assert (tmp_path / "a.log").read_bytes() == b"two\n"


def test_lines_of_a_foreign_file_stay(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"before\n")
    files = opened(tmp_path)
    files.commit({"a.log": b"one\n"}, CollectorProgress("1-0"))
    assert (tmp_path / "a.log").read_bytes() == b"before\none\n"


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"format": 99}', '{"format":1,"cursor":"0-0","server":"","seen":{},"sizes":{"../x":0}}'],
)
def test_an_unreadable_state_is_put_aside(tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / STATE_NAME).write_text(content)
    files = opened(tmp_path)
    assert files.progress == CollectorProgress()
    assert len(files) == 0
    assert (tmp_path / "collector.bad").read_text() == content
    assert "put aside" in caplog.text


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", ""])
def test_no_path_leads_out_of_the_folder(tmp_path: Path, path: str) -> None:
    files = opened(tmp_path / "run")
    with pytest.raises(ValueError, match="leads out"):
        files.commit({path: b"x"}, CollectorProgress())


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/a.log").symlink_to(tmp_path / "target")
    files = opened(tmp_path / "run")
    with pytest.raises(OSError, match=r"."):
        files.commit({"a.log": b"x"}, CollectorProgress())
    assert (tmp_path / "target").read_bytes() == b"precious"


def test_only_so_many_processes_are_remembered(tmp_path: Path) -> None:
    files = opened(tmp_path)
    files.commit({}, CollectorProgress("1-0", "", {str(i): Seen(1) for i in range(MAX_PROCESSES + 5)}))
    assert next(iter(files.progress.seen)) == "5"
    assert len(files.progress.seen) == MAX_PROCESSES


def test_seen_knows_late_entries_from_repeated_ones() -> None:
    seen = Seen()
    for sequence in (1, 2, 5):
        assert sequence not in seen
        seen = seen.add(sequence)
    assert seen == Seen(5, (3, 4))
    assert [number in seen for number in range(1, 7)] == [True, True, False, False, True, False]
    assert seen.add(3).add(4) == Seen(5)
    assert len(seen.add(10**18).missing) == 64
