"""`surreal config explain`: what a setting is, from the schema and the classes."""

from __future__ import annotations

from typing import Any

import pytest

from surreal.base.errors import ConfigError
from surreal.plugins.apps.explaining import explain

PPO: dict[str, Any] = {"learner": {"class": "surreal.learner.PPOLearner", "gamma": 0.5, "args": {"clip_range": 0.1}}}


def test_a_setting_of_the_schema() -> None:
    found = explain("learner.gamma", PPO)
    assert (found.key, found.kind, found.default, found.given) == ("learner.gamma", "number >= 0, <= 1", "0.99", 0.5)
    assert found.meaning.startswith("Discount factor per env step.")
    assert found.lines()[:2] == ["learner.gamma", "  now      0.5"]


@pytest.mark.parametrize("key", ["learner.clip_range", "learner.args.clip_range", "learner.clip-range"])
def test_an_option_of_the_class_that_the_app_names(key: str) -> None:
    found = explain(key, PPO)
    assert (found.key, found.default, found.given) == ("learner.args.clip_range", "0.2", 0.1)
    assert "larger steps" in found.meaning
    with pytest.raises(ConfigError, match="nor an option of DQNLearner"):
        explain(key, {})


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("run.max_time_s", "s"),
        ("replay.max_bytes", "bytes, or a text such as 64mb"),
        ("broadcast.interval_updates", "updates"),
        ("sender.chunk_steps", "steps"),
        ("rlx.demo", ""),
    ],
)
def test_units(key: str, unit: str) -> None:
    assert explain(key, {}).unit == unit


def test_a_section_lists_its_settings_and_a_class_says_what_it_is() -> None:
    assert "trajectories" not in explain("rlx", {}).meaning
    assert "Settings: servers, clients" in explain("rlx", {}).meaning
    assert "several epochs over each batch" in explain("learner.class", PPO).meaning
    assert "hidden_sizes" in explain("model.hidden_sizes", {}).key


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("learner.gama", "did you mean gamma"),
        ("lerner.gamma", "did you mean learner.gamma"),
        ("rlx.prt", "did you mean rlx.port"),
        ("run.max_env_steps.x", "is not a setting"),
        ("learner.device", "neither a setting nor an option"),
    ],
)
def test_what_is_no_setting(key: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        explain(key, PPO)
