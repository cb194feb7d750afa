"""What a sweep's file says, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from surreal.base.errors import ConfigError
from surreal.config import load_config, preset_names, to_yaml
from surreal.plugins.sweep.definition import Definition, check_settings, load_definition
from surreal.plugins.sweep.schema import Choice, HalvingPruner, Range

GRID = """
version: 1
base: bandit-pg
set:
  run.max_env_steps: 500
grid:
  learner.gamma: [0.9, 0.99]
  model.args.hidden_sizes: [[8], [16, 16]]
seeds: 3
"""
SEARCH = """
base: bandit-pg
search:
  trials: 20
  sampler: random
  pruner: {type: successive_halving, interval_env_steps: 500}
  space:
    learner.args.initial_learning_rate: {low: 1e-4, high: 1e-2, log: true}
    eval.episodes: {low: 4, high: 16, step: 4}
    learner.gamma: [0.9, 0.99]
seeds: [5, 7]
score: {evaluation: last, seeds: iqm}
"""


def load(tmp_path: Path, text: str, name: str = "lr.yaml") -> Definition:
    (tmp_path / name).write_text(text)
    return load_definition(tmp_path / name)


def test_grid(tmp_path: Path) -> None:
    found = load(tmp_path, GRID)
    assert (found.config.name, found.num_trials, found.config.seeds) == ("lr", 4, [0, 1, 2])
    settings = {"learner.gamma": 0.99, "model.args.hidden_sizes": [16, 16]}
    config = found.run_config(settings)
    assert (config.learner.gamma, config.model.args["hidden_sizes"], config.run.max_env_steps) == (0.99, [16, 16], 500)
    assert load_config("bandit-pg", found.overrides(settings, seed=2)).seed == 2
    assert check_settings(found)[-1] == settings


def test_search(tmp_path: Path) -> None:
    found = load(tmp_path, SEARCH)
    search = found.config.search
    assert search is not None
    assert (found.num_trials, search.sampler, found.config.seeds) == (20, "random", [5, 7])
    assert search.pruner == HalvingPruner(type="successive_halving", interval_env_steps=500)
    assert found.space["learner.gamma"] == Choice((0.9, 0.99))
    assert found.space["eval.episodes"] == Range(low=4, high=16, step=4)
    assert {key for each in check_settings(found) for key in each} == set(found.space)


def test_seeds_alone_are_a_sweep_of_one_trial(tmp_path: Path) -> None:
    assert load(tmp_path, "base: bandit-pg\nseeds: 5").num_trials == 1


def test_base_beside_the_file_is_found_from_everywhere(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(to_yaml(load_config("bandit-pg", ["learner.gamma=0.5"])))
    found = load(tmp_path, "base: mine.yaml")
    assert found.run_config({}).learner.gamma == 0.5


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("sed: 3", "sed is not a setting (bad.yaml line 2); did you mean"),
        ("grid: {learner.gama: [0.9]}", "learner.gama is not a setting (bad.yaml line 2); did you mean learner.gamma?"),
        ("grid: {learner.gamma: [0.9, 1.9]}", "learner.gamma is 1.9; it must be <= 1.0 (bad.yaml line 2)"),
        ("set: {learner.gama: 0.9}", "learner.gama is not a setting (bad.yaml line 2)"),
        ("grid: {learner.gamma: 0.9}", "grid.learner.gamma is 0.9; it must be a list of values, or a range"),
        ("grid: {learner.gamma: []}", "grid.learner.gamma is an empty list"),
        ("grid: {learner.gamma: {low: 0.5, high: 0.9}}", "grid.learner.gamma.count is missing"),
        ("grid: {learner.gamma: {low: 0.5, high: 0.9, cuont: 3}}", "cuont is not a setting (bad.yaml line 2)"),
        ("grid: {learner.gamma: {low: 0.9, high: 0.5, count: 3}}", "low must be < high (bad.yaml line 2)"),
        (
            "grid: {learner.gamma: {low: 0.5, high: 0.9, count: 3, step: 0.1}}",
            "step is only for a search",
        ),
        ("grid: {learner: {gamma: [0.9]}}", "name its settings with dots, such as `learner.gamma: ...` (bad.yaml line"),
        ("set: {run: {max_env_steps: 5}}", "set.run is a section; name its settings with dots"),
        ("grid: {seed: [1, 2]}", "grid.seed is set by the sweep: list the seeds under `seeds` (bad.yaml line 2)"),
        ("set: {seed: 1}", "set.seed is set by the sweep: list the seeds"),
        ("grid: {redis.maxmemory: [1gb]}", "all runs of a sweep share one Redis"),
        ("set: {learner.gamma: 0.9}\ngrid: {learner.gamma: [0.9]}", "learner.gamma is under set and under grid"),
        ("grid: {}\nsearch: {trials: 1, space: {learner.gamma: [0.9]}}", "grid and search exclude each other"),
        ("search: {trials: 0, space: {learner.gamma: [0.9]}}", "search.trials is 0; it must be >= 1 (bad.yaml line 2)"),
        ("search: {trials: 5}", "search.space is missing"),
        ("search: {trials: 5, space: {}}", "search.space"),
        ("search: {trials: 1, sampler: tpa, space: {learner.gamma: [0.9]}}", "search.sampler is 'tpa'; it must be"),
        ("search: {trials: 1, pruner: {type: x}, space: {learner.gamma: [0.9]}}", "search.pruner.type is 'x'"),
        ("search: {trials: 1, space: {learner.gamma: {low: 0.5, high: 0.9, count: 3}}}", "count is only for a grid"),
        ("search: {trials: 1, space: {learner.gamma: {low: 0.5, high: 1.9}}}", "learner.gamma is 1.9; it must be <= 1"),
        ("seeds: [1, 1]", "seeds contains a seed twice"),
        ("seeds: 0", "seeds"),
        ("seeds: [-1]", "seeds.0 is -1; it must be >= 0"),
        ("parallel: 0", "parallel is 0; it must be >= 1 (bad.yaml line 2)"),
        (
            "set: {eval.enabled: false, run.stop_at_return: null}",
            "eval.enabled is false (bad.yaml line 2); a sweep compares evaluations",
        ),
        ("set: {run.max_env_steps: null}", "the runs of a sweep need an end"),
        ("set: {redis.appendonly: true}", "redis.appendonly"),
        ("grid: {learner.gamma: [0.9], learner.gamma: [0.8]}", "learner.gamma is given twice"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_settings(load(tmp_path, f"base: bandit-pg\n{line}\n", "bad.yaml"))
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("grid: {}", "base is missing"),
        ("base: bandit-pq", "bandit-pq is neither a file nor a preset; did you mean bandit-pg?"),
        ("base: nowhere.yaml", "nowhere.yaml does not exist"),
        ("- base", "a sweep is a mapping"),
        ("", "a sweep is a mapping"),
        ("base: [", "is not valid YAML"),
        ("version: 2\nbase: bandit-pg", "version is 2; it must be 1"),
    ],
)
def test_file_that_is_no_sweep_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_settings(load(tmp_path, text))
    assert problem in str(caught.value)


def test_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml cannot be read: No such file"):
        load_definition(tmp_path / "none.yaml")


def test_grid_without_an_end_is_refused_at_once(tmp_path: Path) -> None:
    keys = [f"x.{number}: {{low: 0, high: 1000, count: 1000}}" for number in range(4)]
    with pytest.raises(ConfigError, match="grid has 1,000,000,000,000 combinations"):
        load(tmp_path, f"base: bandit-pg\ngrid: {{{', '.join(keys)}}}")


def test_value_of_a_search_may_conflict_with_what_varies_too(tmp_path: Path) -> None:
    space = "{learner.batch_size: [4, 16], env.num_envs: [4, 16]}"  # one must be the other
    found = load(tmp_path, f"base: bandit-pg\nsearch: {{trials: 3, space: {space}}}")
    assert check_settings(found)[0] == {}
    with pytest.raises(ConfigError, match=r"batch_size is 16, but .* \(lr.yaml line 2\)"):
        found.run_config({"learner.batch_size": 16})


@pytest.mark.parametrize("preset", preset_names())
def test_resolved_copy_of_a_base_is_the_same_configuration(tmp_path: Path, preset: str) -> None:
    config = load_config(preset)
    (tmp_path / "base.yaml").write_text(to_yaml(config))
    plain: dict[str, Any] = yaml.safe_load(to_yaml(load_config(tmp_path / "base.yaml")))
    plain.pop("python_path")
    assert plain == {key: value for key, value in yaml.safe_load(to_yaml(config)).items() if key != "python_path"}
