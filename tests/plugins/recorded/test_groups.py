"""Runs of one configuration belong together."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal.base.errors import ConfigError
from surreal.plugins.recorded.settings import group_runs, read_settings
from tests.recorded import record_run


def test_runs_that_differ_in_their_seed_or_in_how_they_end_are_one_group(tmp_path: Path) -> None:
    settings = [
        read_settings(record_run(tmp_path / "a", seed=1)),
        read_settings(record_run(tmp_path / "b", seed=2, overrides=["run.max_env_steps=7", "device=cpu"])),
        read_settings(record_run(tmp_path / "c", seed=1, overrides=["learner.batch_size=32"])),
    ]
    groups = group_runs(["cartpole-dqn"] * 3, settings)
    assert [group.members for group in groups] == [(0, 1), (2,)]
    assert [group.label for group in groups] == ["cartpole-dqn batch_size=128", "cartpole-dqn batch_size=32"]
    assert groups[0].strata == ("CartPole-v1", "CartPole-v1")


def test_groups_of_different_names_need_no_settings_beside_them() -> None:
    groups = group_runs(["dqn", "ppo"], [{"agent.class": "A"}, {"agent.class": "B"}])
    assert [group.label for group in groups] == ["dqn", "ppo"]


def test_settings_that_are_named_tell_groups_apart() -> None:
    settings = [{"env.id": env, "learner.gamma": gamma} for env in ("A", "B") for gamma in (0.9, 0.99)]
    groups = group_runs(["x"] * 4, settings, ["learner.gamma"])
    assert [(group.label, group.members, group.strata) for group in groups] == [
        ("gamma=0.9", (0, 2), ("A", "B")),
        ("gamma=0.99", (1, 3), ("A", "B")),
    ]
    with pytest.raises(ConfigError, match=r"learner\.gama is a setting of none"):
        group_runs(["x"] * 4, settings, ["learner.gama"])


def test_runs_without_settings_are_alone() -> None:
    assert [group.members for group in group_runs(["a", "a"], [{}, {}])] == [(0,), (1,)]


def test_a_run_from_before_a_setting_existed_has_its_default(tmp_path: Path) -> None:
    new = read_settings(record_run(tmp_path / "new", seed=1))
    for missing in (["env.rate_hz"], [key for key in new if key.startswith("rlx.")]):
        old = {key: value for key, value in new.items() if key not in missing} | {"seed": 2}
        assert [group.members for group in group_runs(["x"] * 2, [old, new])] == [(0, 1)]
        changed = read_settings(record_run(tmp_path / f"changed-{len(missing)}", overrides=[f"{missing[0]}=7"]))
        groups = group_runs(["x"] * 3, [old, changed, new])
        assert [group.members for group in groups] == [(0, 2), (1,)]


def test_the_default_of_a_section_is_none_where_a_run_switched_it_off() -> None:
    by_default = {"env.id": "A", "agent.exploration.type": "linear"}
    assert len(group_runs(["x"] * 2, [by_default, {"env.id": "A", "agent.exploration": None}])) == 2
