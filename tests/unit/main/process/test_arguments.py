"""Arguments of the role processes."""

from __future__ import annotations

import pytest

from surreal.config import load_config
from surreal.main.process.arguments import parse
from surreal.main.process.roles import AGENT


@pytest.mark.parametrize("level", ["info", "INFO", "Info"])
def test_log_levels_are_read_in_any_case(level: str) -> None:
    arguments = parse(AGENT, ["cartpole-dqn", "--log-level", level], "")
    assert arguments.log_level == "info"
    assert load_config("cartpole-dqn", arguments.overrides).log_level == "info"
