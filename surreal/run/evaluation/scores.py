"""Scores of episodes and rounds of evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

#: Standard errors that a mean of many episodes strays in one direction with a probability of 5 %.
_ONE_SIDED_95 = 1.645


class EpisodeScore(NamedTuple):
    """One episode: undiscounted return, length in env steps, and the seed its environment was reset with."""

    episode_return: float
    length: int
    seed: int
    is_cut: bool = False  #: it did not end within the steps that an episode may take
    is_success: bool | None = None  #: whether it reached its goal, as its last `info` says; None: it does not say


@dataclass(frozen=True, repr=False)
class EvaluationRound:
    """The episodes played with one frozen version of the parameters."""

    number: int
    version: int
    scores: tuple[EpisodeScore, ...]

    def __repr__(self) -> str:
        mean, error = self.mean_return, self.standard_error
        return f"<EvaluationRound: mean return {mean:.6g} (standard error {error:.3g}), {len(self.scores)} episodes>"

    @property
    def mean_return(self) -> float:
        return float(np.mean([score.episode_return for score in self.scores]))

    @property
    def std_return(self) -> float:
        """Sample standard deviation (n - 1); 0 for one episode."""
        if len(self.scores) < 2:
            return 0.0
        with np.errstate(invalid="ignore"):
            return float(np.std([score.episode_return for score in self.scores], ddof=1))

    @property
    def standard_error(self) -> float:
        return self.std_return / math.sqrt(len(self.scores))

    @property
    def lower_bound(self) -> float:
        """One-sided 95 % confidence bound below the mean."""
        return self.mean_return - _ONE_SIDED_95 * self.standard_error

    @property
    def upper_bound(self) -> float:
        """One-sided 95 % confidence bound above the mean."""
        return self.mean_return + _ONE_SIDED_95 * self.standard_error

    @property
    def mean_length(self) -> float:
        return float(np.mean([score.length for score in self.scores]))

    @property
    def success_ratio(self) -> float | None:
        """Share of the episodes that reached their goals; None if their environment does not say."""
        known = [score.is_success for score in self.scores if score.is_success is not None]
        return float(np.mean(known)) if known else None

    @property
    def cut_episodes(self) -> int:
        return sum(score.is_cut for score in self.scores)

    @property
    def problem(self) -> str:
        """Reason why this round does not score its policy; "" if it does."""
        for score in self.scores:
            if not math.isfinite(score.episode_return):
                return f"the evaluation's return is not finite: {score.episode_return} with seed {score.seed}"
        return ""

    def of(self, scores: Sequence[EpisodeScore]) -> EvaluationRound:
        """These episodes of the same version by themselves."""
        return EvaluationRound(self.number, self.version, tuple(scores))

    def extended(self, scores: Sequence[EpisodeScore]) -> EvaluationRound:
        return self.of((*self.scores, *scores))
