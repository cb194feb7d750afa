"""Atari games in the plain loop."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import gymnasium

from surreal.envs.base import GymEnv
from surreal.errors import EnvError


class Atari(GymEnv):
    """An Atari game with its own screen and rewards.

    Args:
        name: of the game, `SpaceInvaders`, or a whole id, `ALE/SpaceInvaders-v5`.
        kwargs: arguments of ale-py's environment.

    Raises:
        EnvError: ale-py is not installed, or has no such game.
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        if importlib.util.find_spec("ale_py") is None:
            raise EnvError(f"Atari({name!r}) needs ale-py, which is not installed; run: pip install surreal[atari]")
        gymnasium.register_envs(importlib.import_module("ale_py"))
        super().__init__(name if "/" in name else f"ALE/{name}-v5", **kwargs)
