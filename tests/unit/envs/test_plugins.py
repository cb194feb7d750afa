"""Environments that other packages register through the entry point group `surreal.environments`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

from surreal.envs.ids import find_env, load_plugins
from surreal.envs.make import make_env
from tests.fake_distribution import write_distribution

ENVS = """
import gymnasium

gymnasium.register("Plugged-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
"""
ENTRIES = "[surreal.environments]\ngames = plugged_games\nsame = plugged_games\nbroken = broken_games\n"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    write_distribution(tmp_path, "games", ENTRIES, {"plugged_games": ENVS, "broken_games": "import no_such_module"})
    monkeypatch.syspath_prepend(tmp_path)
    load_plugins.cache_clear()
    yield
    load_plugins.cache_clear()
    gymnasium.registry.pop("Plugged-v0", None)
    sys.modules.pop("plugged_games", None)


@pytest.mark.usefixtures("installed")
def test_modules_are_imported_before_an_id_is_looked_up(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        env = make_env("Plugged-v0")
        find_env("CartPole-v1")
    env.close()
    (warning,) = caplog.messages
    assert (
        warning == "the environments of broken_games are missing: ModuleNotFoundError: No module named 'no_such_module'"
    )


def test_without_such_packages_the_id_is_unknown() -> None:
    with pytest.raises(gymnasium.error.Error):
        find_env("Plugged-v0")
