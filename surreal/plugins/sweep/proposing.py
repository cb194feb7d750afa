"""The settings of the next trial: from a grid, or from Optuna."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from surreal.base.errors import ConfigError, FolderError
from surreal.base.system.program import install_command
from surreal.plugins.sweep.definition import Definition
from surreal.plugins.sweep.folder import Trial
from surreal.plugins.sweep.schema import Choice, Dimension, HalvingPruner, MedianPruner, SearchConfig, combinations

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
