"""Scores of runs and trials, and the end of a trial: finished, failed or pruned."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from surreal.plugins.recorded.listing import ListedRun, read_run
from surreal.plugins.sweep.folder import End, SweepFolder, Trial
from surreal.plugins.sweep.proposing import Proposer
from surreal.plugins.sweep.schema import SweepConfig
from surreal.run.build.checkpoints import round_lines

Rounds = Sequence[Mapping[str, Any]]


def run_score(rounds: Rounds, evaluation: Literal["best", "last"]) -> float | None:
    """Return the score of one run from its rounds, without those before the first update.

    None: no round was played, or the mean return that counts is not finite.
    """
    returns = [_mean_return(line) for line in rounds if line.get("updates") != 0]
    if evaluation == "last":
        found = returns[-1] if returns else math.nan
    else:
        found = max((value for value in returns if math.isfinite(value)), default=math.nan)
    return found if math.isfinite(found) else None


def over_seeds(scores: Sequence[float], how: Literal["mean", "iqm"]) -> float:
    """Average the scores of a trial's runs, one for each seed, at least one.

    The interquartile mean leaves out the lowest and the highest quarter; where a quarter is not a whole number of runs,
    those at its edge count in part (Agarwal et al. 2021, arXiv:2108.13264, section 4.3).
    """
    values = np.sort(np.asarray(scores, np.float64))
    if how == "mean":
        return float(values.mean())
    # Value i of n covers i/n to (i + 1)/n; its weight is the part of that in the middle half.
    edges = np.linspace(0.0, 1.0, len(values) + 1)
    weights = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0.0, None)
    return float(values @ weights / weights.sum())


def curve(rounds: Rounds, interval_env_steps: int) -> dict[int, float]:
    """Return the mean return at each multiple of an interval: of the first round at or after those env steps.

    Evaluations come at any time, but only returns after the same env steps can be compared. One that is not finite is
    NaN.
    """
    found: dict[int, float] = {}
    for line in rounds:
        step = line.get("global_step")
        if not isinstance(step, int):
            continue
        for number in range(len(found) + 1, step // interval_env_steps + 1):
            found[number * interval_env_steps] = _mean_return(line)
    return found


def reports(curves: Mapping[int, Mapping[int, float]], ended: frozenset[int]) -> dict[int, float]:
    """Average the seeds of a trial for the pruner, up to the env steps that all of them have reached.

    A seed that has `ended` early keeps its last return.
    """
    steps = sorted({step for each in curves.values() for step in each})
    found: dict[int, float] = {}
    for step in steps:
        values = []
        for seed, each in curves.items():
            if step in each:
                values.append(each[step])
            elif seed in ended:
                values += [each[max(each)]] if each else []
            else:
                return found
        found[step] = float(np.mean(values))
    return found


def _mean_return(line: Mapping[str, Any]) -> float:
    value = line.get("mean_return")
    return float(value) if isinstance(value, int | float) else math.nan


class TrialSeed(NamedTuple):
    """One run of a sweep: its trial's number, and its seed."""

    trial: int
    seed: int


class Judge:
    """Decides when and how trials end."""

    def __init__(self, config: SweepConfig, folder: SweepFolder, proposer: Proposer) -> None:
        self._config = config
        self._folder = folder
        self._proposer = proposer
        self._pruner = None if config.search is None else config.search.pruner

    def end_of(self, trial: Trial, failures: Mapping[TrialSeed, str]) -> End | None:
        """Return the end of a trial, None if it continues; `failures` has reasons that folders of runs do not."""
        runs = {seed: read_run(self._folder.run_folder(trial, seed)) for seed in self._config.seeds}
        told = self._reports(trial, runs)
        scores: dict[int, float] = {}
        for seed, run in runs.items():
            failure = failures.get(TrialSeed(trial.number, seed), run.reason if run.status == "failed" else "")
            if run.status == "finished" and not failure:
                score = run_score(self._rounds(trial, seed), self._config.score.evaluation)
                if score is None:
                    failure = "it has no score: no evaluation round was played, or its return is not finite"
                else:
                    scores[seed] = score
            if failure:
                return End("failed", reason=f"seed {seed}: {failure}", reports=told)
        if len(scores) == len(runs):
            return End("finished", over_seeds(list(scores.values()), self._config.score.seeds), scores, reports=told)
        reason = self._proposer.prune(trial, told) if told else ""
        return End("pruned", scores=scores, reason=reason, reports=told) if reason else None

    def _reports(self, trial: Trial, runs: Mapping[int, ListedRun]) -> dict[int, float]:
        if self._pruner is None:
            return {}
        begun = [seed for seed, run in runs.items() if run.started]
        curves = {seed: curve(self._rounds(trial, seed), self._pruner.interval_env_steps) for seed in begun}
        return reports(curves, frozenset(seed for seed in begun if runs[seed].status == "finished"))

    def _rounds(self, trial: Trial, seed: int) -> list[dict[str, Any]]:
        return round_lines(self._folder.run_folder(trial, seed) / "eval" / "scores.jsonl", warns=False)
