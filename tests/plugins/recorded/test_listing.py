"""Which runs there are, out of folders of every kind."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from surreal.config import load_config
from surreal.plugins.recorded.listing import ListedRun, last_round, list_runs, read_run
from surreal.run.process.ending import Counts, Ending, ExitCode, result_of
from surreal.run.process.run_folder import RunFolder

CONFIG = load_config("bandit-pg", ["seed=7"])


def begin(path: Path, run: str = "run-1", started: float = 1000.0) -> RunFolder:
    folder = RunFolder(path)
    folder.claim()
    folder.begin(CONFIG, run, started)
    return folder


def end(folder: RunFolder, ending: Ending, started: float = 1000.0, **more: Any) -> None:
    folder.write_result(result_of(CONFIG, "run-1", ending, started=started, **more))
    folder.release()


def test_run_that_is_over_says_how_it_went(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "a"
    end(begin(path), Ending("max_env_steps"), time_s=12.5, counts=Counts(300, 20), best={"mean_return": 0.5})
    assert list_runs([tmp_path / "runs"]) == [
        ListedRun(
            "run-1",
            "finished",
            path,
            "bandit-pg",
            7,
            "max_env_steps",
            1000.0,
            12.5,
            300,
            20,
            0.5,
            False,
            "surreal/Bandit-v0",
        )
    ]


def test_run_is_running_as_long_as_somebody_writes_there(tmp_path: Path) -> None:
    folder = begin(tmp_path / "a")
    (folder.path / "eval").mkdir()
    (folder.path / "eval" / "best.json").write_text('{"mean_return": 3.5}')
    (folder.path / "eval" / "scores.jsonl").write_text('{"kind": "round", "updates": 4, "global_step": 90}\n{"kind"')
    lines = [{"time": 1000.0 + i, "process": "agent-0", "step": i, "metrics": {}} for i in range(101)]
    (folder.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"time": 1')
    running = read_run(folder.path)
    assert (running.status, running.is_alive) == ("running", True)
    assert (running.env_steps, running.updates, running.best_return) == (100, 4, 3.5)
    assert running.time_s > 1e6  # since 1970, nearly
    folder.release()  # as the kernel does when the writer is killed, but for the words in the lock
    killed = read_run(folder.path)
    assert (killed.status, killed.is_alive, killed.time_s) == ("killed", False, 100.0)
    assert killed.env_steps == 100


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("process PID on HERE", "running"),
        ("process 4000000 on HERE", "killed"),
        ("process 4000000 on elsewhere", "running"),
        ("", "killed"),
        ("nonsense", "killed"),
    ],
)
def test_words_of_a_lock_tell_whether_the_writer_is_alive(tmp_path: Path, words: str, status: str) -> None:
    begin(tmp_path / "a").release()
    words = words.replace("PID", str(os.getpid())).replace("HERE", socket.gethostname())
    (tmp_path / "a" / "run.lock").write_text(words)
    assert read_run(tmp_path / "a").status == status


def test_process_that_only_has_the_number_of_a_killed_writer_is_not_it(tmp_path: Path) -> None:
    begin(tmp_path / "a").release()
    lock = tmp_path / "a" / "run.lock"
    lock.write_text(f"process {os.getpid()} on {socket.gethostname()}")
    os.utime(lock, (1000.0, 1000.0))  # long before this process began
    assert read_run(tmp_path / "a").status == "killed"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"status": "odd"}', '{"status": "failed", "seed": "x"}', '{"status": 3}', "[" * 9999],
)
def test_result_that_makes_no_sense_is_named_and_hides_no_other_run(tmp_path: Path, text: str) -> None:
    begin(tmp_path / "bad").release()
    (tmp_path / "bad" / "result.json").write_text(text)
    end(begin(tmp_path / "good"), Ending("agent-0 failed: boom", ExitCode.FAILED))
    by_label = {run.label: run for run in list_runs([tmp_path])}
    assert by_label["good"].status == "failed"
    assert by_label["bad"].status == "unreadable"
    assert by_label["bad"].reason.startswith("its result.json makes no sense: ")


DEEP, HUGE = "[" * 9999, "1" + 400 * "0"


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("metrics.jsonl", DEEP),
        *[("metrics.jsonl", f'{{"time": {number}, "step": 5}}') for number in (HUGE, '"x"')],
        *[("metrics.jsonl", f'{{"time": 5.0, "step": {number}}}') for number in ("1e999", "NaN")],
        ("eval/scores.jsonl", DEEP),
        ("eval/best.json", DEEP),
        ("eval/best.json", f'{{"mean_return": {HUGE}}}'),
        ("result.json", '{"status": "finished", "env_steps": 1e999}'),
    ],
)
def test_a_broken_line_hides_no_run(tmp_path: Path, file: str, line: str) -> None:
    folder = begin(tmp_path / "a")
    (folder.path / "eval").mkdir()
    (folder.path / "metrics.jsonl").write_text('{"time": 1005.0, "step": 7}\n')
    with (folder.path / file).open("w" if file.endswith(".json") else "a") as written:
        written.write(f"{line}\n")
    folder.release()
    found = read_run(folder.path)
    assert (found.status, found.env_steps) == (("unreadable", 0) if file == "result.json" else ("killed", 7))


def test_folder_of_a_run_that_was_killed_at_once_is_named(tmp_path: Path) -> None:
    begin(tmp_path / "a").release()
    (tmp_path / "a" / "result.json").unlink()
    (found,) = list_runs([tmp_path])
    assert (found.status, found.reason, found.run) == ("unreadable", "it has no result.json", "run-1")


def test_what_is_no_run_is_passed_over(tmp_path: Path) -> None:
    assert list_runs([tmp_path / "nowhere", tmp_path]) == []
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "app.yaml").touch()  # `surreal new`
    (tmp_path / "file").touch()
    begin(tmp_path / ".hidden").release()
    assert list_runs([tmp_path]) == []


def test_folder_may_be_a_runs_own_or_hold_runs_and_counts_once(tmp_path: Path) -> None:
    end(begin(tmp_path / "sweep" / "runs" / "b"), Ending("x"), started=2.0)
    end(begin(tmp_path / "sweep" / "runs" / "a"), Ending("x"), started=3.0)
    folders = [tmp_path / "sweep", tmp_path / "sweep" / "runs", tmp_path / "sweep" / "runs" / "a"]
    assert [run.label for run in list_runs(folders)] == ["b", "a"]  # the oldest first


def test_redis_adds_runs_and_knows_who_is_at_work_elsewhere(tmp_path: Path) -> None:
    begin(tmp_path / "a").release()
    known = ListedRun("run-1", "running", name="bandit-pg", env_steps=50, is_in_redis=True)
    other = replace(known, run="run-2", status="over")
    merged, alone = sorted(list_runs([tmp_path], [known, other]), key=lambda run: run.run)
    assert (merged.status, merged.env_steps, merged.seed, merged.folder) == ("running", 50, 7, tmp_path / "a")
    assert alone == other
    (merged,) = list_runs([tmp_path], [replace(known, status="over")])
    assert (merged.status, merged.is_in_redis) == ("killed", True)


def test_newest_round_is_the_last_whole_line(tmp_path: Path) -> None:
    assert last_round(tmp_path) is None
    (tmp_path / "eval").mkdir()
    lines = ['{"kind": "round", "round": 0}', '{"kind": "episode"}', '{"kind": "round", "round": 1}', '{"kind": "rou']
    (tmp_path / "eval" / "scores.jsonl").write_text("\n".join(lines))
    assert (last_round(tmp_path) or {})["round"] == 1
