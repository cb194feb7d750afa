"""Ranking: which of a run's checkpoints are the best, by the rounds of its evaluation.

The score of a checkpoint is the mean return of the rounds whose parameters are nearest to it, by updates: a window of
rounds rather than one that was lucky. It lies beside the checkpoints in `scores.json`, so that a machine that has
nothing else of the run knows the best one too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

SCORES_NAME = "scores.json"


class Round(NamedTuple):
    """A round of the evaluation."""

    time: float  #: when it ended, s since 1970; no two rounds of a run have the same
    updates: int  #: of the parameters that played it
    mean_return: float


class Score(NamedTuple):
    """The score of a checkpoint."""

    mean_return: float
    rounds: int  #: that it is the mean of


class Ranking:
    """Scores of the checkpoints of one run, by their steps, which are updates.

    Attributes:
        last_time: of the rounds up to which all were counted, s since 1970.
    """

    def __init__(self) -> None:
        self.last_time = -math.inf
        self._scores: dict[int, Score] = {}

    def add(self, rounds: Iterable[Round], steps: Collection[int]) -> None:
        """Count each round that is new for the checkpoint nearest to it, of two the later one.

        A round of later parameters than all checkpoints waits, and those after it, until there is one.

        Args:
            rounds: of the evaluation; those that were counted are passed over.
            steps: of the run's checkpoints, those that are gone again among them.
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

    def pass_over(self, rounds: Iterable[Round]) -> None:
        """Count none of these rounds any more: their parameters are none that the run went on from."""
        self.last_time = max((done.time for done in rounds), default=self.last_time)

    def forget(self, step: int) -> None:
        """A checkpoint of this step is a new one: what is known is of another, which was set aside."""
        self._scores.pop(step, None)

    def best(self, steps: Iterable[int], count: int) -> list[int]:
        """The best of some checkpoints, the best first, of equals the later one; none that has no score.

        Args:
            steps: to choose from.
            count: how many at most, >= 0.
        """
        scored = [step for step in steps if step in self._scores]
        return sorted(scored, key=lambda step: (self._scores[step].mean_return, step), reverse=True)[:count]

    def score(self, step: int) -> Score | None:
        """The score of a checkpoint, None if no round was near."""
        return self._scores.get(step)

    def take_over(self, other: Ranking) -> None:
        """Know what another ranking of the same run knows; of two scores, that of the ranking that saw later rounds."""
        newer = other.last_time > self.last_time
        self._scores = {**self._scores, **other._scores} if newer else {**other._scores, **self._scores}
        self.last_time = max(self.last_time, other.last_time)

    def to_json(self, steps: Iterable[int]) -> str:
        """Write down the scores of some checkpoints, "" if there are none."""
        scores = {f"{step:010d}": self._scores[step]._asdict() for step in steps if step in self._scores}
        return json.dumps({"last_time": self.last_time, "scores": scores}, indent=2) + "\n" if scores else ""

    @classmethod
    def from_json(cls, text: str | bytes) -> Ranking:
        """Read what `to_json` wrote; what is damaged is a ranking without scores."""
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
        raise ValueError(f"{score} is no score")
    return score
