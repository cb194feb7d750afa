"""The evaluation's book-keeping on disk."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch

from surreal.base.checkpoint import load_checkpoint
from surreal.base.checkpoint.store import Round
from surreal.run.build.checkpoints import round_lines, scored_rounds
from surreal.run.evaluation import EpisodeScore, EvaluationRound
from surreal.run.session import scores as module
from surreal.run.session.scores import RoundFile, read_best


def add(book: RoundFile, mean: float, version: int, **options: bool) -> bool:
    scores = (EpisodeScore(mean - 1, 5, 1), EpisodeScore(mean + 1, 7, 2))
    tensors = {"weight": torch.full((2,), float(version))}
    result = EvaluationRound(book.rounds, version, scores)
    return book.add(result, tensors, {"config": {}}, {"global_step": 10 * version}, **options)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]


def test_every_episode_and_every_round_is_a_line(tmp_path: Path) -> None:
    add(RoundFile(tmp_path), 10.0, 3)
    episodes, (summary,) = lines(tmp_path)[:2], lines(tmp_path)[2:]
    assert [line["return"] for line in episodes] == [9.0, 11.0]
    assert (summary["kind"], summary["mean_return"], summary["version"], summary["global_step"]) == (
        "round",
        10.0,
        3,
        30,
    )


def test_scores_are_bounded_and_rounds_are_counted_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SCORES_BYTES", 2000)
    for _ in range(30):  # a new process each time
        add(RoundFile(tmp_path), 10.0, 3)
    files = [tmp_path / "scores.jsonl.older", tmp_path / "scores.jsonl"]
    assert all(path.stat().st_size < 3000 for path in files)
    numbers = [line["round"] for line in round_lines(files[1])]
    assert numbers == [*range(numbers[0], 30)] and numbers[0] > 0
    assert RoundFile(tmp_path).rounds == 30


def test_rounds_are_read_without_the_whole_file_in_memory(tmp_path: Path) -> None:
    """The learner reads them for each of its checkpoints, and the C library keeps what that takes."""
    episode = json.dumps({"kind": "episode", "round": 0, "return": 10.0, "seed": 1966162193})
    lines = [*[episode] * 20, json.dumps({"kind": "round", "time": 1.0, "updates": 7, "mean_return": 2.5})]
    path = tmp_path / "eval" / "scores.jsonl"
    path.parent.mkdir()
    path.write_text("".join(f"{line}\n" for line in lines) * 1000)
    tracemalloc.start()
    rounds = scored_rounds(tmp_path)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rounds == [Round(1.0, 7, 2.5)] * 1000
    assert peak_bytes < path.stat().st_size / 4


def test_best_policy_is_the_one_of_the_best_round(tmp_path: Path) -> None:
    book = RoundFile(tmp_path)
    assert [add(book, mean, version) for version, mean in enumerate([5.0, 20.0, 10.0], 1)] == [True, True, False]
    policy = load_checkpoint(tmp_path / "best.safetensors")
    assert policy.tensors["weight"].tolist() == [2.0, 2.0]
    assert policy.metadata["version"] == 2
    assert json.loads((tmp_path / "best.json").read_text())["mean_return"] == 20.0


def test_a_tie_does_not_replace_the_best(tmp_path: Path) -> None:
    book = RoundFile(tmp_path)
    assert add(book, 5.0, 1)
    assert not add(book, 5.0, 2)
    assert load_checkpoint(tmp_path / "best.safetensors").metadata["version"] == 1


def test_round_that_ends_the_run_is_the_best_even_after_a_luckier_one(tmp_path: Path) -> None:
    book = RoundFile(tmp_path)
    assert add(book, 20.0, 1)
    assert add(book, 15.0, 2, reaches_goal=True)
    assert not add(book, float("nan"), 3, reaches_goal=True)
    assert load_checkpoint(tmp_path / "best.safetensors").metadata["version"] == 2


def test_policy_that_has_not_learned_is_never_best(tmp_path: Path) -> None:
    book = RoundFile(tmp_path, keep=2)
    assert not add(book, 340.0, 1, has_learned=False)
    assert book.best is None
    assert add(book, 12.0, 2)
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == [
        "best-0000000002.safetensors",
        "best.safetensors",
    ]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_return_that_is_not_finite_is_written_down_and_never_best(tmp_path: Path, bad: float) -> None:
    book = RoundFile(tmp_path, keep=2)
    assert not add(book, bad, 1)
    assert not (tmp_path / "best.json").exists()
    assert add(book, 5.0, 2)
    assert not add(book, bad, 3)
    first = next(line for line in lines(tmp_path) if line["kind"] == "round")
    assert first["mean_return"] is None
    assert first["problem"].startswith(f"the evaluation's return is not finite: {bad}")
    again = RoundFile(tmp_path, keep=2)
    assert (again.rounds, again.last_version, again.best_return) == (3, 3, 5.0)
    assert sorted(path.name for path in tmp_path.glob("best-*")) == ["best-0000000002.safetensors"]


def test_best_file_that_is_not_finite_is_no_best(tmp_path: Path) -> None:
    (tmp_path / "best.json").write_text('{"mean_return": NaN}')
    assert add(RoundFile(tmp_path), 5.0, 1)


def test_episode_that_was_cut_is_marked(tmp_path: Path) -> None:
    scores = (EpisodeScore(1.0, 5, 1), EpisodeScore(2.0, 9, 2, is_cut=True))
    RoundFile(tmp_path).add(EvaluationRound(0, 1, scores), {"weight": torch.ones(1)}, {}, {})
    *episodes, summary = lines(tmp_path)
    assert ([line["is_cut"] for line in episodes], summary["cut_episodes"]) == ([False, True], 1)


def test_started_again_it_goes_on_where_the_files_end(tmp_path: Path) -> None:
    add(RoundFile(tmp_path), 50.0, 4)
    book = RoundFile(tmp_path)
    assert (book.rounds, book.last_version, book.best_return) == (1, 4, 50.0)
    assert not add(book, 10.0, 5)
    assert [line["round"] for line in lines(tmp_path) if line["kind"] == "round"] == [0, 1]


def test_line_cut_off_by_a_kill_loses_only_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    add(RoundFile(tmp_path), 50.0, 4)
    with (tmp_path / "scores.jsonl").open("a") as file:
        file.write('{"kind": "rou')
    add(RoundFile(tmp_path), 60.0, 5)
    assert "cut off" in caplog.text
    assert RoundFile(tmp_path).rounds == 2


def test_further_policies_are_the_best_ones(tmp_path: Path) -> None:
    book = RoundFile(tmp_path, keep=2)
    for version, mean in enumerate([5.0, 20.0, 10.0, 1.0], 1):
        add(book, mean, version)
    assert sorted(path.name for path in tmp_path.glob("best-*")) == [
        "best-0000000002.safetensors",
        "best-0000000003.safetensors",
    ]
    again = RoundFile(tmp_path, keep=2)
    add(again, 15.0, 9)
    assert sorted(path.name for path in tmp_path.glob("best-*")) == [
        "best-0000000002.safetensors",
        "best-0000000009.safetensors",
    ]


def test_best_of_a_run_folder_without_evaluation_is_none(tmp_path: Path) -> None:
    assert read_best(tmp_path) is None
    with pytest.raises(ValueError, match=r"^keep is 0"):
        RoundFile(tmp_path, keep=0)
