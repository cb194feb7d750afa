"""The queue of `make learn`, and the curves that its runs leave."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks import curves, learn, results
from benchmarks.alone import Span
from benchmarks.curves import Point, draw, read_curves, read_run, tasks, write_curve
from surreal.config import preset_names

_SENTENCE = "solved {}: mean return 499.5 (standard error 0.1) over 1000 episodes, 2000 env steps, 9 s\n"


@pytest.fixture
def learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Runs that end at once; the commands that ran."""
    commands: list[list[str]] = []

    def run(command: Sequence[str], active: list[Span]) -> subprocess.CompletedProcess[str]:
        commands.append([*command])
        run_dir = Path(command[command.index("--run-dir") + 1])
        preset = run_dir.name.rpartition("-")[0]
        (run_dir / "eval").mkdir(parents=True, exist_ok=True)
        (run_dir / "run.id").touch()
        (run_dir / "result.json").write_text(json.dumps({"status": "finished", "started": 100.0}))
        round_ = {"kind": "round", "time": 130.0, "global_step": 2000, "mean_return": 499.5}
        (run_dir / "eval" / "scores.jsonl").write_text(json.dumps(round_) + "\n")
        active += [Span(100.0, 110.0), Span(125.0, 140.0)]
        return subprocess.CompletedProcess(command, 0, _SENTENCE.format(preset), "")

    monkeypatch.setattr(learn, "run_between_benchmarks", run)
    monkeypatch.setattr(curves, "FOLDER", tmp_path / "curves")
    monkeypatch.setattr(write_curve, "__defaults__", (tmp_path / "curves",))
    monkeypatch.setattr(results, "RECORDS", tmp_path / "results.jsonl")
    for name in ("draw_all", "write_page", "write_headers"):
        monkeypatch.setattr(learn, name, lambda *_: None)
    monkeypatch.setenv("SURREAL_LEARN", str(tmp_path / "runs"))
    return commands


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert learn.main([*arguments, "--list"]) == 0
    return [line.rsplit(" ", 1)[0].strip() for line in capsys.readouterr().out.splitlines()]


def test_small_tasks_come_first_and_what_is_recorded_is_skipped(
    learned: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    queue = listed(capsys, "--seeds", "0", "1")
    assert queue.index("cartpole-ppo 1") < queue.index("lunarlander-dqn 0") < queue.index("atari-ppo 0")
    assert queue.index("atari-ppo 1") < queue.index("walker2d-sac 0") < queue.index("atari-dqn 0")
    assert sorted(queue) == sorted(
        f"{name} {seed}" for name in preset_names() if name not in learn.PLAYED for seed in range(2)
    )
    assert learn.main(["cartpole-ppo", "--seeds", "1"]) == 0
    assert set(queue) - set(listed(capsys, "--seeds", "0", "1")) == {"cartpole-ppo 1"}
    assert "nice" in learned[0] and learned[0][learned[0].index("--seed") + 1] == "1"


def test_a_run_leaves_a_record_and_a_curve_without_its_pause(learned: list[list[str]], tmp_path: Path) -> None:
    assert learn.main(["cartpole-ppo", "--seeds", "3"]) == 0
    record = results.read_records()["cartpole-ppo", ()][3]
    assert (record["return"], record["env_steps"], record["seconds"]) == (499.5, 2000, 25)
    assert (tmp_path / "curves" / "cartpole-ppo-3.csv").read_text() == (
        "env_steps,seconds,mean_return\n2000,15.0,499.5\n"
    )


def test_a_run_that_was_interrupted_continues_and_a_finished_one_is_kept(
    learned: list[list[str]], tmp_path: Path
) -> None:
    run_dir = tmp_path / "runs" / "cartpole-ppo-0"
    run_dir.mkdir(parents=True)
    (run_dir / "run.id").touch()
    run_dir.with_suffix(".spans").write_text("[[10.0, 20.0]]")
    assert learn.main(["cartpole-ppo", "--seeds", "0"]) == 0
    assert "--resume" in learned[0] and "--seed" not in learned[0]
    assert results.read_records()["cartpole-ppo", ()][0]["seconds"] == 35
    with pytest.raises(FileExistsError, match="delete it"):
        learn.main(["cartpole-ppo", "--seeds", "0"])


def test_two_run_at_once(learned: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=60)
    once = learn.run_between_benchmarks

    def meet(*arguments: Any) -> Any:
        both.wait()
        return once(*arguments)

    monkeypatch.setattr(learn, "run_between_benchmarks", meet)
    assert learn.main(["cartpole-ppo", "--seeds", "0", "1"]) == 0


def test_the_queue_has_every_preset_that_trains_alone(
    learned: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    queued = {job.rpartition(" ")[0] for job in listed(capsys, "--seeds", "9")}
    assert queued == set(preset_names()) - {"bandit-rlx", "catch-rlx"}


def test_presets_for_recorded_experience_learn_from_their_dataset(
    learned: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SURREAL_DATASETS", "/recorded")
    assert learn.main(["pendulum-bc", "hopper-cql", "pendulum-rlpd", "--seeds", "0"]) == 0
    found = {
        command[-3]: command[command.index("--offline") + 1] if "--offline" in command else None for command in learned
    }
    assert found == {
        "pendulum-bc": "/recorded/pendulum-expert",
        "hopper-cql": "/recorded/hopper-medium",
        "pendulum-rlpd": None,
    }


def test_an_interrupted_run_leaves_no_record_and_continues_next_time(
    learned: list[list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    once = learn.run_between_benchmarks

    def interrupt(command: Sequence[str], active: list[Span]) -> subprocess.CompletedProcess[str]:
        once(command, active)
        run_dir = Path(command[command.index("--run-dir") + 1])
        (run_dir / "result.json").write_text(json.dumps({"status": "interrupted"}))
        return subprocess.CompletedProcess(command, 130, "", "ended: interrupted by SIGINT\n")

    monkeypatch.setattr(learn, "run_between_benchmarks", interrupt)
    assert learn.main(["cartpole-ppo", "--seeds", "0"]) == 0
    assert results.read_records() == {}
    monkeypatch.setattr(learn, "run_between_benchmarks", once)
    assert learn.main(["cartpole-ppo", "--seeds", "0"]) == 0
    assert "--resume" in learned[1] and 0 in results.read_records()["cartpole-ppo", ()]


def test_ctrl_c_begins_no_more_runs(learned: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[int] = []
    is_cancelled = threading.Event()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            is_cancelled.set()
            super().shutdown(wait=wait)

    def interrupt(preset: str, settings: Sequence[str], seed: int) -> None:
        began.append(seed)
        if seed == 0:
            raise KeyboardInterrupt
        assert is_cancelled.wait(60)

    monkeypatch.setattr(learn, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(learn, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        learn.main(["cartpole-ppo", "--seeds", *map(str, range(20))])
    assert 0 in began and len(began) <= 3


def test_curves_are_those_of_presets() -> None:
    assert set(read_curves()) <= set(preset_names())


def test_a_failure_is_recorded_and_reported(
    learned: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "one\nerror: no\n")
    monkeypatch.setattr(learn, "run_between_benchmarks", lambda *_: failed)
    assert learn.main(["cartpole-ppo", "--seeds", "0"]) == 1
    assert json.loads(capsys.readouterr().out)["error"] == "error: no"


def test_a_curve_is_thinned_evenly_and_keeps_its_ends(tmp_path: Path) -> None:
    points = [Point(step, step / 10, step / 100) for step in range(1000)]
    write_curve(points, "cartpole-ppo", 0, tmp_path)
    rows = read_curves(tmp_path)["cartpole-ppo"][0]
    assert len(rows) == 200 and (rows[0], rows[-1]) == (points[0], points[-1])
    assert {b.env_steps - a.env_steps for a, b in itertools.pairwise(rows)} == {5, 6}


def test_rounds_alone_are_read(tmp_path: Path) -> None:
    (tmp_path / "eval").mkdir()
    lines = [
        {"kind": "episode", "return": 1.0},
        {"kind": "round", "time": 12.0, "global_step": 500, "mean_return": 20.0},
        {"kind": "round", "time": 40.0, "global_step": 900, "mean_return": 30.0},
    ]
    (tmp_path / "eval" / "scores.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_run(tmp_path, [Span(10.0, 20.0), Span(35.0, 50.0)]) == [Point(500, 2.0, 20.0), Point(900, 15.0, 30.0)]


def test_a_picture_has_all_algorithms_of_a_task_its_reference_and_the_number_of_seeds(tmp_path: Path) -> None:
    assert tasks(["cartpole-ppo", "atari-ppo", "cartpole-dqn"]) == {
        "cartpole": ["cartpole-ppo", "cartpole-dqn"],
        "pong": ["atari-ppo"],
    }
    rows = [Point(0, 0.0, 10.0), Point(100, 1.0, 400.0)]
    path = draw("cartpole", {"cartpole-ppo": {0: rows, 1: rows}, "cartpole-dqn": {0: rows}}, tmp_path)
    text = path.read_text()
    for label in ("cartpole-ppo (2 seeds)", "cartpole-dqn (1 seed)", "reference 500", "environment steps"):
        assert label in text
