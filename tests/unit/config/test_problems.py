"""What an unknown setting leads to: the setting that means the same here."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal.base.errors import ConfigError
from surreal.config import Config, load_config
from surreal.config.problems import OTHER_WORDS, all_keys


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("learner.rewards_gamma", "learner.gamma"),
        ("replay.buffer_size", "replay.capacity"),
        ("algorithm.name", "learner.class"),
        ("run.total_timesteps", "run.max_env_steps"),
        ("checkpoint.checkpoint_dir", "checkpoint.stores"),
    ],
)
def test_a_word_of_another_system_leads_to_the_setting_here(key: str, meant: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"is not a setting \(--set\); did you mean {meant}\?"):
        load_config("cartpole-dqn", [f"{key}=1"])


def test_every_other_word_leads_to_a_setting_that_exists() -> None:
    keys = set(all_keys(Config))
    assert {meant.partition(".args.")[0] for meant in OTHER_WORDS.values()} <= keys
    assert not set(OTHER_WORDS) & {key.rpartition(".")[2] for key in keys}
