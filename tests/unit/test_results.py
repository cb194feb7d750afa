"""The table of results: goals are not below their references, and a reference counts only when it is confirmed."""

from __future__ import annotations

import re

import pytest

from benchmarks.headers import records_of, with_results
from benchmarks.references import REFERENCES, TIMED
from benchmarks.results import aim_rows, is_confirmed, page, read_records, timed_rows
from benchmarks.zoo import TWINS, verdict
from surreal.config import load_config, preset_names
from surreal.config.classes import import_class
from surreal.config.preset_files import preset_path
from surreal.replay import Replay

#: Headers that compare with other settings.
BY_HAND = ("bitflip-her-dqn", "cartpole-pqn-lstm")


@pytest.mark.parametrize("preset", [name for name in REFERENCES if not name.startswith("atari")])
def test_goal_of_a_preset_is_not_below_its_reference(preset: str) -> None:
    config = load_config(preset)
    assert config.run.stop_at_return is not None
    assert config.run.stop_at_return >= REFERENCES[preset].mean_return
    assert 100 <= config.eval.confirm_episodes <= 1000


def test_reference_is_reached_when_it_is_confirmed() -> None:
    assert is_confirmed({"return": 10.0, "standard_error": 0.6}, 9.0)
    assert not is_confirmed({"return": 10.0, "standard_error": 0.61}, 9.0)
    assert not is_confirmed({"return": 10.0}, 9.0)


def test_table_names_what_was_not_run_and_what_is_not_confirmed() -> None:
    record = {"seed": 0, "machine": "m", "env_steps": 1, "seconds": 1}
    known, lucky = {**record, "return": 501.0, "standard_error": 0.1}, {**record, "return": 500.1, "standard_error": 1}
    text = page({("cartpole-ppo", ()): {0: known}, ("cartpole-a2c", ()): {0: lucky}}, {})
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    assert rows["cartpole-ppo"].endswith("| 1 of 1 |")
    assert rows["cartpole-a2c"].endswith("| not confirmed |")
    assert "| not run |" in rows["cartpole-trpo"]


def test_an_aim_is_reached_by_the_mean_over_the_seeds_within_its_env_steps() -> None:
    record = {"machine": "m", "return": 280.0, "env_steps": 500_000, "seconds": 1}
    verdicts = []
    for changes in ({}, {"return": 275.0}, {"env_steps": 500_001}):
        of_seeds = {0: {**record, "seed": 0}, 1: {**record, "seed": 1, **changes}}
        rows = [row for row in aim_rows({("lunarlander-continuous-tqc", ()): of_seeds}) if "278" in row]
        verdicts.append(rows[0].split("|")[-2].strip())
    assert verdicts == ["yes", "no", "no"]
    assert all(row.endswith("| not run |") for row in aim_rows({}))


def test_an_aim_in_seconds_is_reached_by_each_seed_that_is_in_time() -> None:
    aim, record = TIMED["halfcheetah-tqc"], {"machine": "m", "return": 9535.0, "env_steps": 1, "seconds": 3600}
    of_seeds = {0: {**record, "seed": 0}, 1: {**record, "seed": 1, "return": 9534.0}}
    of_seeds |= {2: {**record, "seed": 2, "seconds": 3601}, 3: {"machine": "m", "seed": 3, "error": "no"}}
    row = next(iter(timed_rows({("halfcheetah-tqc", aim.settings): of_seeds})))
    assert row.startswith("| `halfcheetah-tqc` | 9535 in 60 min | 0, 1, 2, 3 |") and row.endswith("| 1 of 4 |")
    assert all(row.endswith("| not run |") for row in timed_rows({("halfcheetah-tqc", ()): of_seeds}))


@pytest.mark.parametrize("preset", preset_names())
def test_the_header_of_a_preset_has_the_results_that_are_recorded(preset: str) -> None:
    text = preset_path(preset).read_text()
    of_seeds = records_of(preset, read_records())
    assert with_results(text, preset, of_seeds) == text, "python -m benchmarks.learn --write"
    assert not re.search(r"^# .*\b(reached|not run with)\b", text, re.MULTILINE) or preset in BY_HAND


def test_results_take_the_place_of_older_ones() -> None:
    record = {"return": 499.96, "episodes": 1000, "env_steps": 2000}
    once = with_results("# A preset.\nversion: 1\n", "cartpole-a2c", [{**record, "seed": 0}])
    assert once == (
        "# A preset.\n# Result: 500 (seed 0; 1000 fresh episodes) after 2,000 env steps.\n"
        "# Reference: 500 after 500,000 env steps (docs/results.md).\nversion: 1\n"
    )
    records = [{**record, "seed": 0}, {**record, "seed": 2, "return": -3.5, "env_steps": 10}, {"seed": 3, "error": 1}]
    twice = with_results(once, "cartpole-a2c", records)
    assert twice == once.replace(
        "500 (seed 0; 1000 fresh episodes) after 2,000",
        "500 and -3.5 (seeds 0 and 2; 1000 fresh episodes) after 10 to 2,000",
    )
    timed = with_results(
        "# A\na: 1\n", "halfcheetah-tqc", [{**record, "seed": 0, "settings": ["run.stop_at_return=9535"]}]
    )
    assert "after 2,000 env steps, with run.stop_at_return 9535.\n" in timed
    assert "Result: not run to its end yet.\n" in with_results(twice, "cartpole-a2c", [])
    assert "from 2,000 recorded env steps" in with_results("# A\na: 1\n", "pendulum-bc", [{**record, "seed": 0}])
    assert with_results("# A\na: 1\n", "catch-rlx", []) == "# A\na: 1\n"


def test_surreal_stands_next_to_the_twin_of_the_zoo() -> None:
    assert TWINS.keys() <= set(preset_names())
    record = {"machine": "m", "env_steps": 1000, "seconds": 1}
    ours = {seed: {**record, "seed": seed, "return": 480.0 + seed} for seed in range(3)}
    theirs = {seed: {**record, "seed": seed, "return": 500.0, "env_steps": 2000 + seed} for seed in range(2)}
    text = page(
        {("cartpole-ppo", ()): ours, ("cartpole-a2c", ()): ours}, {"cartpole-ppo": theirs, "cartpole-dqn": theirs}
    )
    (row,) = (line for line in text.splitlines() if "2,001" in line)
    assert row == "| `cartpole-ppo` | 481 (480 .. 482) | 1,000 | 500 (500 .. 500) | 2,001 | no | 500 |"


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ([-160.0, -140.0], [-155.0], "yes"),
        ([-155.0], [-155.0, -155.0], "yes"),
        ([-170.0, -150.0], [-155.0, -154.0], "overlap"),
        ([-170.0, -156.0], [-155.0, -154.0], "no"),
    ],
)
def test_ranges_that_overlap_count(ours: list[float], theirs: list[float], found: str) -> None:
    assert verdict(ours, theirs) == found


@pytest.mark.parametrize("preset", preset_names())
def test_target_networks_of_presets_are_copied_often_enough_in_their_budget(preset: str) -> None:
    config = load_config(preset)
    period = config.learner.args.get("target_update_period")
    if period is None or config.replay.samples_per_insert is None:
        return  # a soft target, or on-policy
    replay = import_class(config.replay.class_path, Replay)
    batch = config.learner.batch_size * replay.count_steps_per_sample(**config.replay.args)
    updates = config.run.max_env_steps * config.replay.samples_per_insert / batch
    assert updates / period >= 100
