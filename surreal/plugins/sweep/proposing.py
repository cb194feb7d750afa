"""The settings of the next trial, from a grid or from Optuna; scores of runs and trials, and the end of a trial."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from surreal.base.errors import ConfigError, FolderError
from surreal.base.system.program import install_command
from surreal.plugins.recorded.listing import ListedRun, read_run
from surreal.plugins.sweep.definition import Definition
from surreal.plugins.sweep.folder import End, SweepFolder, Trial
from surreal.plugins.sweep.schema import (
    Choice,
    Dimension,
    HalvingPruner,
    MedianPruner,
    SearchConfig,
    SweepConfig,
    combinations,
)
from surreal.run.build.checkpoints import round_lines

if TYPE_CHECKING:
    import optuna
    from optuna.trial import Trial as AskedTrial


class Proposer(Protocol):
    """Chooses the settings of trials."""

    def ask(self, number: int) -> dict[str, Any] | None:
        """Return the settings of the next trial, which gets this number; None: there are enough."""

    def prune(self, trial: Trial, reports: Mapping[int, float]) -> str:
        """Return the reason to end a trial, given its returns so far by env steps; "" to continue."""

    def tell(self, trial: Trial) -> None:
        """Learn from a trial that has ended."""


class Grid:
    """Proposes every combination, one after the other."""

    def __init__(self, definition: Definition) -> None:
        self._settings = combinations(definition.space)

    def ask(self, number: int) -> dict[str, Any] | None:
        return self._settings[number] if number < len(self._settings) else None

    def prune(self, trial: Trial, reports: Mapping[int, float]) -> str:
        return ""

    def tell(self, trial: Trial) -> None:
        """Ignore the result: a grid does not depend on it."""


class OptunaSearch:
    """Proposes settings that depend on the results of earlier trials; the file of Optuna's storage is replaced."""

    def __init__(self, definition: Definition, trials: Sequence[Trial], journal: Path) -> None:
        optuna = require_optuna()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        if definition.config.search is None:
            raise ValueError("the sweep has no search")
        self._search: SearchConfig = definition.config.search
        self._space = definition.space
        self._distributions = {key: _distribution(dimension) for key, dimension in definition.space.items()}
        self._states = optuna.trial.TrialState
        sampler = optuna.samplers.TPESampler if self._search.sampler == "tpe" else optuna.samplers.RandomSampler
        try:
            journal.unlink(missing_ok=True)
            storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(journal)))
        except OSError as error:
            raise FolderError(f"{journal} could not be written: {error}") from error
        self._study = optuna.create_study(
            storage=storage,
            study_name=definition.config.name,
            direction="maximize",
            sampler=sampler(seed=self._search.seed + len(trials)),  # a sweep that continues draws other values
            pruner=_pruner(self._search),
        )
        self._running: dict[int, AskedTrial] = {}
        self._reported: dict[int, set[int]] = {}
        for trial in trials:
            self._restore(trial)

    def ask(self, number: int) -> dict[str, Any] | None:
        if number >= self._search.trials:
            return None
        asked = self._study.ask(self._distributions)
        if asked.number != number:
            raise RuntimeError(f"Optuna's trial {asked.number} is the sweep's trial {number}")
        self._running[number] = asked
        return {
            key: json.loads(value) if isinstance(self._space[key], Choice) else value
            for key, value in asked.params.items()
        }

    def prune(self, trial: Trial, reports: Mapping[int, float]) -> str:
        running = self._running[trial.number]
        known = self._reported.setdefault(trial.number, set())
        for step in sorted(reports.keys() - known):
            known.add(step)
            running.report(reports[step], step)
            if running.should_prune():
                return f"pruned: a return of {reports[step]:.4g} after {step:,} env steps is not worth continuing"
        return ""

    def tell(self, trial: Trial) -> None:
        del self._running[trial.number]
        end = trial.end
        if end is not None and end.status == "finished":
            self._study.tell(trial.number, end.score)
        else:
            is_pruned = end is not None and end.status == "pruned"
            self._study.tell(trial.number, state=self._states.PRUNED if is_pruned else self._states.FAIL)

    def _restore(self, trial: Trial) -> None:
        """Add a trial from the file to the study, by the steps that it took when it ran."""
        import optuna

        params = {key: _encode(self._space[key], value) for key, value in trial.settings.items()}
        frozen = optuna.trial.create_trial(
            state=self._states.RUNNING, params=params, distributions=dict(self._distributions)
        )
        self._study.add_trial(frozen)
        self._running[trial.number] = optuna.trial.Trial(self._study, self._study.trials[-1]._trial_id)
        if trial.end is not None:
            self.prune(trial, trial.end.reports)
            self.tell(trial)


def require_optuna() -> Any:
    """Import Optuna, which may be missing."""
    try:
        import optuna
    except ImportError as error:
        raise ConfigError(
            f"search needs Optuna, which is not installed: {install_command('sweep')}; grid works without it",
            key="search",
        ) from error
    return optuna


def _distribution(dimension: Dimension) -> optuna.distributions.BaseDistribution:
    from optuna import distributions

    if isinstance(dimension, Choice):
        return distributions.CategoricalDistribution([_encode(dimension, value) for value in dimension.values])
    kind = distributions.IntDistribution if dimension.is_whole else distributions.FloatDistribution
    step = dimension.step if dimension.step is not None or not dimension.is_whole else 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the last step may end below `high`
        return kind(dimension.low, dimension.high, log=dimension.log, step=step)  # type: ignore[arg-type]


def _encode(dimension: Dimension, value: Any) -> Any:
    """Encode a value for Optuna, whose choices are numbers or texts: a choice becomes JSON."""
    return json.dumps(value) if isinstance(dimension, Choice) else value


def _pruner(search: SearchConfig) -> optuna.pruners.BasePruner:
    from optuna import pruners

    match search.pruner:
        case MedianPruner(startup_trials=startup, warmup_env_steps=warmup):
            return pruners.MedianPruner(n_startup_trials=startup, n_warmup_steps=warmup)
        case HalvingPruner(interval_env_steps=interval, reduction_factor=factor):
            return pruners.SuccessiveHalvingPruner(min_resource=interval, reduction_factor=factor)
        case _:
            return pruners.NopPruner()


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
        return list(round_lines(self._folder.run_folder(trial, seed) / "eval" / "scores.jsonl", warns=False))
