"""Scores of an evaluation elsewhere arrive in the learner's folder: each round once, and the best policy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import redis
import torch

from surreal.base.checkpoint import load_checkpoint
from surreal.base.errors import BusyError
from surreal.distributed.connection.client import RedisClient
from surreal.run.evaluation import EpisodeScore, EvaluationRound
from surreal.run.session import score_sharing as sharing
from surreal.run.session.score_sharing import ScoreCollector, ScoreSender, claim_scores
from surreal.run.session.scores import RoundFile


def refuse(*_: Any, **__: Any) -> None:
    raise redis.ConnectionError("away")


def play(
    client: RedisClient,
    book: RoundFile,
    episode_return: float,
    sender: ScoreSender | None = None,
    *,
    reaches_goal: bool = False,
) -> None:
    """Let the evaluation of a book score a round, whose policy is its return."""
    number = book.rounds
    result = EvaluationRound(number, number + 1, (EpisodeScore(episode_return, 10, 1),))
    is_best = book.add(result, {"x": torch.tensor([episode_return])}, {}, {}, reaches_goal=reaches_goal)
    (sender or ScoreSender(client, book)).send_newest(is_best=is_best)


def test_rounds_that_redis_did_not_take_go_with_the_next_one(
    client: RedisClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book, mine = RoundFile(tmp_path / "there"), tmp_path / "here"
    sender = ScoreSender(client, book)
    with monkeypatch.context() as away:
        away.setattr(client.redis, "xadd", refuse)
        for episode_return in (3.0, 7.0):
            play(client, book, episode_return, sender)
    play(client, book, 5.0, sender)
    ScoreCollector(client, mine).step()
    assert (mine / "scores.jsonl").read_bytes() == (tmp_path / "there" / "scores.jsonl").read_bytes()
    assert load_checkpoint(mine / "best.safetensors").tensors["x"].item() == 7.0


def test_rounds_arrive_once_and_the_best_policy_with_them(client: RedisClient, tmp_path: Path) -> None:
    book, mine = RoundFile(tmp_path / "there"), tmp_path / "here"
    for episode_return in (3.0, 7.0, 5.0):
        play(client, book, episode_return)
        ScoreCollector(client, mine).step()  # one that begins anew each time
    assert (mine / "scores.jsonl").read_bytes() == (tmp_path / "there" / "scores.jsonl").read_bytes()
    assert json.loads((mine / "best.json").read_text()) == book.best
    assert load_checkpoint(mine / "best.safetensors").tensors["x"].item() == 7.0
    play(client, book, 6.0, reaches_goal=True)
    ScoreCollector(client, mine).step()
    assert load_checkpoint(mine / "best.safetensors").tensors["x"].item() == 6.0
    assert {path.name for path in mine.iterdir()} == {"scores.jsonl", "best.json", "best.safetensors", "eval.lock"}


def test_rounds_arrive_after_redis_lost_the_last_of_them(client: RedisClient, tmp_path: Path) -> None:
    """The clock of the server that was promoted is behind: its ids are below those that were read."""
    book, mine, scores = RoundFile(tmp_path / "there"), tmp_path / "here", client.run_keys.scores
    collector = ScoreCollector(client, mine)
    client.redis.execute_command("XGROUP", "CREATE", scores, "any", "$", "MKSTREAM")
    client.redis.execute_command("XSETID", scores, f"{1 << 45}-0")
    play(client, book, 3.0)
    collector.step()
    ((lost, _),) = client.redis.xrange(scores)
    client.redis.xdel(scores, lost)
    client.redis.execute_command("XSETID", scores, "0-1")
    play(client, book, 7.0)
    for _ in range(2):
        collector.step()
    assert (mine / "scores.jsonl").read_bytes() == (tmp_path / "there" / "scores.jsonl").read_bytes()


def test_where_the_evaluation_writes_itself_nothing_is_brought(client: RedisClient, tmp_path: Path) -> None:
    lock = claim_scores(tmp_path)
    book = RoundFile(tmp_path)
    play(client, book, 3.0)
    before = (tmp_path / "scores.jsonl").read_bytes()
    ScoreCollector(client, tmp_path).step()
    lock.release()
    ScoreCollector(client, tmp_path).step()
    assert (tmp_path / "scores.jsonl").read_bytes() == before


def test_a_second_evaluation_in_a_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "_LOCK_TIMEOUT_S", 0.1)
    lock = claim_scores(tmp_path)
    with pytest.raises(BusyError, match="has an evaluation: process"):
        claim_scores(tmp_path)
    lock.release()
    claim_scores(tmp_path).release()


@pytest.mark.parametrize(
    "lines", [b"", b"{", b"[1]", b'{"kind": "episode"}', b'{"kind": "round", "time": "x", "round": 1, "version": 1}']
)
def test_what_is_no_round_is_passed_over(client: RedisClient, tmp_path: Path, lines: bytes) -> None:
    client.redis.xadd(client.run_keys.scores, {"lines": lines})
    client.redis.hset(client.run_keys.best, mapping={"score": b'{"mean_return": 9}', "policy": b"no policy"})
    collector = ScoreCollector(client, tmp_path)
    for _ in range(2):
        collector.step()
    assert {path.name for path in tmp_path.iterdir()} <= {"eval.lock"}
