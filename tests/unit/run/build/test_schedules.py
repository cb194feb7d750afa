"""What schedules of a learner count, and where they end."""

from __future__ import annotations

from typing import Any

import pytest

from surreal.base.errors import ConfigError
from surreal.config import load_config
from surreal.run.build.acting import build_model
from surreal.run.build.environments import build_spaces
from surreal.run.build.learning import build_learner


def length(*overrides: str) -> int:
    config = load_config("cartpole-ppo", ["run.max_env_steps=5000", *overrides])
    learner: Any = build_learner(config, build_model(config, build_spaces(config)), None)
    found: int = learner.max_global_step
    return found


def test_schedules_end_with_the_run_in_what_they_count() -> None:
    by_updates = "learner.args.schedule_step=update"
    assert length() == 5000
    assert length(by_updates, "learner.max_updates=20") == 20
    assert length(by_updates, "learner.args.max_global_step=30") == 30
    with pytest.raises(ConfigError, match=r"use_linear_schedule needs it to be >= 1. Set it, or learner\.max_updates"):
        length(by_updates)
