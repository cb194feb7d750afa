"""Ranking: scores of a run's checkpoints, from the rounds of its evaluation.

A checkpoint's score is the mean return of the rounds whose parameters are nearest to it, by updates, so that one lucky
round does not decide. `scores.json` next to the checkpoints holds the scores, so that other machines know them too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

SCORES_NAME = "scores.json"


class Round(NamedTuple):
    """A round of the evaluation."""

    time: float  #: its end, s since 1970; unique in a run
    updates: int  #: of the parameters that it evaluated
    mean_return: float


class Score(NamedTuple):
    """The score of a checkpoint."""

    mean_return: float
    rounds: int  #: number of rounds in the mean


class Ranking:
    """Scores of the checkpoints of one run, by their steps, which are updates.

    Attributes:
        last_time: rounds up to this time were counted, s since 1970.
    """

    def __init__(self) -> None:
        self.last_time = -math.inf
        self._scores: dict[int, Score] = {}

    def add(self, rounds: Iterable[Round], steps: Collection[int]) -> None:
        """Count each new round for the checkpoint nearest to it, the later one of two.

        A round whose parameters are newer than all checkpoints waits for a later call, and so do those after it.

        Args:
            rounds: of the evaluation; rounds that were counted are skipped.
            steps: of all checkpoints that the run saved, removed ones included.
        """
        newest = max(steps, default=-1)
        for done in sorted(rounds):
            if done.time <= self.last_time:
                continue
            if done.updates > newest:
                return
            self.last_time = done.time
            step = min(steps, key=lambda step: (abs(step - done.updates), -step))
            mean, count = self._scores.get(step, Score(0.0, 0))
            self._scores[step] = Score(mean + (done.mean_return - mean) / (count + 1), count + 1)

    def skip(self, rounds: Iterable[Round]) -> None:
        """Never count these rounds: the run did not continue from their parameters."""
        self.last_time = max((done.time for done in rounds), default=self.last_time)

    def forget(self, step: int) -> None:
        """Remove the score of a step, whose checkpoint is replaced."""
        self._scores.pop(step, None)

    def best(self, steps: Iterable[int], count: int) -> list[int]:
        """Choose the best of some checkpoints that have scores, best first; the later one of equals.

        Args:
            steps: to choose from.
            count: how many at most, >= 0.
        """
        scored = [step for step in steps if step in self._scores]
        return sorted(scored, key=lambda step: (self._scores[step].mean_return, step), reverse=True)[:count]

    def score(self, step: int) -> Score | None:
        """Return the score of a checkpoint, None if it has none."""
        return self._scores.get(step)

    def merge(self, other: Ranking) -> None:
        """Add the scores of another ranking of the same run; the ranking that saw later rounds wins."""
        newer = other.last_time > self.last_time
        self._scores = {**self._scores, **other._scores} if newer else {**other._scores, **self._scores}
        self.last_time = max(self.last_time, other.last_time)

    def to_json(self, steps: Iterable[int]) -> str:
        """Encode the scores of some checkpoints, "" if they have none."""
        scores = {f"{step:010d}": self._scores[step]._asdict() for step in steps if step in self._scores}
        return json.dumps({"last_time": self.last_time, "scores": scores}, indent=2) + "\n" if scores else ""

    @classmethod
    def from_json(cls, text: str | bytes) -> Ranking:
        """Decode what `to_json` wrote; damaged text gives a ranking without scores."""
        ranking = cls()
        try:
            content: Any = json.loads(text)
            scores = {int(name): _checked(Score(**score)) for name, score in content["scores"].items()}
            ranking.last_time = float(content["last_time"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return cls()
        ranking._scores = scores
        return ranking


def _checked(score: Score) -> Score:
    if not (math.isfinite(score.mean_return) and score.rounds >= 1):
        raise ValueError(f"{score} is not a score")
    return score
