"""Whether a trial has ended, and with which score: from the folders of its runs, and what its proposer says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from surreal.plugins.sweep.definition.schema import SweepConfig
from surreal.plugins.sweep.folder import SweepFolder
from surreal.plugins.sweep.search.proposing import Proposer
from surreal.plugins.sweep.search.scoring import curve, over_seeds, reports, run_score
from surreal.plugins.sweep.trials import End, Trial
from surreal.run.build.kept import round_lines
from surreal.run.view.listing import ListedRun, read_run


class Seat(NamedTuple):
    """One run of a sweep: its trial's number, and its seed."""

    trial: int
    seed: int


class Judge:
    """Says how trials end.

    Args:
        config: of the sweep.
        folder: of the sweep.
        proposer: may prune.
    """

    def __init__(self, config: SweepConfig, folder: SweepFolder, proposer: Proposer) -> None:
        self._config = config
        self._folder = folder
        self._proposer = proposer
        self._pruner = None if config.search is None else config.search.pruner

    def end_of(self, trial: Trial, failures: Mapping[Seat, str]) -> End | None:
        """How a trial ends now, None if it goes on.

        Args:
            trial: one without an end.
            failures: runs that have failed without saying so in their folders, and why.
        """
        runs = {seed: read_run(self._folder.run_folder(trial, seed)) for seed in self._config.seeds}
        told = self._reports(trial, runs)
        scores: dict[int, float] = {}
        for seed, run in runs.items():
            failure = failures.get(Seat(trial.number, seed), run.reason if run.status == "failed" else "")
            if run.status == "finished" and not failure:
                score = run_score(self._rounds(trial, seed), self._config.score.evaluation)
                if score is None:
                    failure = "it has no score: its evaluation played no round, or its return is not finite"
                else:
                    scores[seed] = score
            if failure:
                return End("failed", reason=f"seed {seed}: {failure}", reports=told)
        if len(scores) == len(runs):
            return End("finished", over_seeds(list(scores.values()), self._config.score.seeds), scores, reports=told)
        reason = self._proposer.prune(trial, told) if told else ""
        return End("pruned", scores=scores, reason=reason, reports=told) if reason else None

    def _reports(self, trial: Trial, runs: Mapping[int, ListedRun]) -> dict[int, float]:
        """What a pruner is to know of a trial: of the seeds that have begun, at the env steps that all have reached."""
        if self._pruner is None:
            return {}
        begun = [seed for seed, run in runs.items() if run.started]
        curves = {seed: curve(self._rounds(trial, seed), self._pruner.interval_env_steps) for seed in begun}
        return reports(curves, frozenset(seed for seed in begun if runs[seed].status == "finished"))

    def _rounds(self, trial: Trial, seed: int) -> list[dict[str, Any]]:
        return round_lines(self._folder.run_folder(trial, seed) / "eval" / "scores.jsonl", warns=False)
