"""A sweep's folder: one process drives it, and it goes on with the trials that it began with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from surreal.base.errors import BusyError, ConfigError
from surreal.config import load_config
from surreal.plugins.sweep.definition import Definition, load_definition
from surreal.plugins.sweep.folder import SweepFolder

TEXT = """
base: bandit-pg
set: {run.max_env_steps: 500}
search:
  trials: 5
  space: {learner.gamma: [0.9, 0.99]}
seeds: 2
"""


def load(tmp_path: Path, text: str = TEXT) -> Definition:
    (tmp_path / "lr.yaml").write_text(text)
    return load_definition(tmp_path / "lr.yaml")


def begun(tmp_path: Path) -> SweepFolder:
    folder = SweepFolder(tmp_path / "sweeps" / "lr")
    folder.claim()
    folder.begin(load(tmp_path)).add({"learner.gamma": 0.9})
    return folder


def test_sweep_goes_on_with_what_it_began_with(tmp_path: Path) -> None:
    begun(tmp_path).release()
    (tmp_path / "lr.yaml").unlink()
    folder = SweepFolder(tmp_path / "sweeps" / "lr")
    folder.claim()
    definition, trials = folder.resume(None)
    assert definition.config.seeds == [0, 1]
    assert definition.run_config({}, base=str(folder.base)).run.max_env_steps == 500
    assert trials.sweep.startswith("lr-")
    assert [trial.settings for trial in trials.trials] == [{"learner.gamma": 0.9}]
    assert load_config(folder.base).name == "bandit-pg"
    assert folder.base.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("[0.9, 0.99]", "[0.9, 0.8]", "search.space"),
        ("seeds: 2", "seeds: 3", "seeds"),
        ("500", "600", "set.run.max_env_steps"),
        ("trials: 5", "trials: 5\n  sampler: random", "search.sampler"),
        ("seeds: 2", "seeds: 2\nscore: {evaluation: best}", "score.evaluation"),
        ("search:\n  trials: 5\n  space: ", "grid: ", "grid.learner.gamma"),
    ],
)
def test_what_would_make_trials_incomparable_may_not_change(tmp_path: Path, old: str, new: str, key: str) -> None:
    folder = begun(tmp_path)
    with pytest.raises(ConfigError) as caught:
        folder.resume(load(tmp_path, TEXT.replace(old, new)))
    assert str(caught.value).startswith(f"{key} has changed since the sweep in {folder.path} began")
    folder.release()


@pytest.mark.parametrize("more", ["parallel: 4", "max_failures: 9", "name: other"])
def test_what_changes_no_trial_may(tmp_path: Path, more: str) -> None:
    folder = begun(tmp_path)
    text = TEXT.replace("trials: 5", "trials: 50") + more
    definition, _ = folder.resume(load(tmp_path, text))
    assert definition.num_trials == 50
    folder.release()


def test_one_process_drives_a_sweep(tmp_path: Path) -> None:
    first, second = begun(tmp_path), SweepFolder(tmp_path / "sweeps" / "lr")
    with pytest.raises(BusyError, match=f"in progress: process {os.getpid()} on .* drives it"):
        second.claim()
    first.release()
    second.claim()
    second.release()


def test_sweep_that_did_not_begin_leaves_nothing(tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path / "lr")
    folder.claim()
    with pytest.raises(ConfigError, match="has no sweep to continue"):
        folder.resume(None)
    folder.release()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be a sweep's folder"):
        SweepFolder(tmp_path / "file").claim()
