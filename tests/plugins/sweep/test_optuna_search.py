"""Optuna as it is installed: what it suggests, what it prunes, and the study that is made anew from the trials."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from surreal.base.errors import ConfigError
from surreal.base.system.program import install_command
from surreal.plugins.sweep.definition import Definition, load_definition
from surreal.plugins.sweep.folder import End, Trial, TrialFile
from surreal.plugins.sweep.proposing import OptunaSearch, require_optuna

optuna = pytest.importorskip("optuna")

TEXT = """
base: bandit-pg
search:
  trials: 40
  sampler: {sampler}
  pruner: {pruner}
  space:
    learner.args.initial_learning_rate: {{low: 1e-5, high: 1e-1, log: true}}
    learner.batch_size: {{low: 4, high: 17, step: 4}}
    eval.episodes: {{low: 1, high: 1000, log: true}}
    model.args.hidden_sizes: [[8], [16, 16], null]
"""
MEDIAN = "{type: median, interval_env_steps: 10, startup_trials: 2, warmup_env_steps: 20}"
HALVING = "{type: successive_halving, interval_env_steps: 10, reduction_factor: 2}"


class Searched:
    """A search with its trials, as the loop of a sweep has them."""

    def __init__(self, folder: Path, sampler: str = "tpe", pruner: str = "null") -> None:
        (folder / "lr.yaml").write_text(TEXT.format(sampler=sampler, pruner=pruner))
        self.definition: Definition = load_definition(folder / "lr.yaml")
        self._folder = folder
        self.go_on()

    def go_on(self) -> None:
        """Forget all but the file."""
        self.trials = TrialFile(self._folder / "trials.jsonl")
        self.search = OptunaSearch(self.definition, self.trials.trials, self._folder / "optuna.journal")

    def ask(self) -> Trial:
        settings = self.search.ask(len(self.trials.trials))
        assert settings is not None
        return self.trials.add(settings)

    def tell(self, trial: Trial, end: End) -> None:
        self.trials.end(trial, end)
        self.search.tell(trial)

    def study(self) -> Any:
        storage = optuna.storages.JournalStorage(
            optuna.storages.journal.JournalFileBackend(str(self._folder / "optuna.journal"))
        )
        return optuna.load_study(study_name="lr", storage=storage)


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_values_are_of_their_ranges(tmp_path: Path, sampler: str) -> None:
    searched = Searched(tmp_path, sampler)
    for number in range(15):
        trial = searched.ask()
        rate, size, episodes, hidden = trial.settings.values()
        assert 1e-5 <= rate <= 1e-1
        assert size in (4, 8, 12, 16)
        assert isinstance(episodes, int)
        assert 1 <= episodes <= 1000
        assert hidden in ([8], [16, 16], None)
        searched.tell(trial, End("finished", float(number)))


def test_there_are_as_many_trials_as_were_asked_for(tmp_path: Path) -> None:
    searched = Searched(tmp_path, "random")
    for _ in range(40):
        searched.tell(searched.ask(), End("failed"))
    assert searched.search.ask(40) is None


def test_tpe_comes_closer_to_what_scores_well(tmp_path: Path) -> None:
    searched = Searched(tmp_path)
    distances = []
    for number in range(40):
        trial = searched.ask()
        if number == 20:
            searched.trials = TrialFile(tmp_path / "trials.jsonl")
            searched.search = OptunaSearch(searched.definition, searched.trials.trials, tmp_path / "optuna.journal")
            trial = searched.trials.trials[-1]
        distance = abs(trial.settings["eval.episodes"] - 700) / 1000
        distances.append(distance)
        searched.tell(trial, End("finished", -distance))
    assert sum(distances[20:]) < sum(distances[:20])


def test_study_is_made_anew_from_the_trials_after_any_interruption(tmp_path: Path) -> None:
    searched = Searched(tmp_path, pruner=MEDIAN)
    for score in (1.0, 2.0, 3.0):
        trial = searched.ask()
        reports = {10: score, 20: score, 30: score}
        assert searched.search.prune(trial, reports) == ""
        searched.tell(trial, End("finished", score, reports=reports))
    searched.tell(searched.ask(), End("failed", reason="no"))
    running = searched.ask()
    asked = searched.search.ask(len(searched.trials.trials))  # and killed before it was written down
    searched.go_on()
    states = [trial.state.name for trial in searched.study().trials]
    assert states == ["COMPLETE", "COMPLETE", "COMPLETE", "FAIL", "RUNNING"]
    assert searched.study().best_value == 3.0
    assert searched.study().trials[0].intermediate_values == {10: 1.0, 20: 1.0, 30: 1.0}
    assert searched.ask().settings != asked  # the sampler goes on, it does not repeat
    # The one that was running is looked at from its beginning, and is pruned as it would have been.
    assert searched.search.prune(running, {10: 0.0, 20: 0.0}) != ""
    assert searched.study().trials[4].params["model.args.hidden_sizes"] in ("[8]", "[16, 16]", "null")


def test_median_pruner_spares_what_is_new_and_what_is_good(tmp_path: Path) -> None:
    searched = Searched(tmp_path, pruner=MEDIAN)
    for score in (5.0, 6.0):
        trial = searched.ask()
        assert searched.search.prune(trial, {10: score, 20: score, 30: score}) == ""
        searched.tell(trial, End("finished", score))
    bad = searched.ask()
    assert searched.search.prune(bad, {10: 0.0}) == ""  # before the warm-up is over
    assert searched.search.prune(bad, {10: 0.0, 20: 0.0}).startswith("pruned: a return of 0 after 20 env steps")
    good = searched.ask()
    assert searched.search.prune(good, {10: 0.0, 20: 9.0, 30: 9.0}) == ""


def test_successive_halving_lets_the_best_go_on(tmp_path: Path) -> None:
    searched = Searched(tmp_path, pruner=HALVING)
    outcomes = []
    for score in (9.0, 1.0, 2.0, 10.0):
        trial = searched.ask()
        reason = searched.search.prune(trial, {10: score, 20: score})
        outcomes.append(bool(reason))
        searched.tell(trial, End("pruned" if reason else "finished", None if reason else score))
    assert outcomes == [False, True, True, False]


def test_trial_that_diverged_is_pruned(tmp_path: Path) -> None:
    searched = Searched(tmp_path, pruner=HALVING)
    assert searched.search.prune(searched.ask(), {10: float("nan")}) != ""


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=re.escape(install_command("sweep"))):
        require_optuna()
