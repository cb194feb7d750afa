"""Atari games in the plain loop."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

import gymnasium

from surreal.base.errors import EnvError
from surreal.envs.make import make_env
from surreal.envs.plain.base import GymEnv
from surreal.envs.wrappers.named import WrapperSpec


class Atari(GymEnv):
    """An Atari game with the usual preprocessing: [84, 84] uint8 gray frames, four frames a step.

    `FrameStack(Atari("Pong"), 4)` gives the stacks that networks for images read.

    Args:
        name: of the game, `SpaceInvaders`, or a whole id, `ALE/SpaceInvaders-v5`.
        training: end an episode with every lost life, and keep only the sign of rewards, as DQN is trained. With False,
            as an evaluation may want it, episodes are whole games, and rewards the game's own. What `EpisodeMonitor`
            counts are whole games and their own rewards in either case.
        preprocessing: arguments of `AtariPreprocessing`: noop_max, frame_skip, screen_size, and fire_on_reset, for
            games that wait for FIRE, which a greedy policy may never press.
        kwargs: arguments of ale-py's environment.

    Raises:
        EnvError: ale-py is not installed, or has no such game.
    """

    def __init__(
        self,
        name: str,
        *,
        training: bool = True,
        preprocessing: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if importlib.util.find_spec("ale_py") is None:
            hint = "run in the clone: pip install -e '.[atari]'"
            raise EnvError(f"Atari({name!r}) needs ale-py, which is not installed; {hint}")
        self._wrappers = (
            WrapperSpec("atari", dict(preprocessing or {})),
            WrapperSpec("life_loss"),
            WrapperSpec("reward_sign"),
        )
        self._training = training
        super().__init__(name if "/" in name else f"ALE/{name}-v5", **kwargs)

    def _make(self, env_id: str, render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
        return make_env(
            env_id, kwargs=self._kwargs, wrappers=self._wrappers, training=self._training, render_mode=render_mode
        )
