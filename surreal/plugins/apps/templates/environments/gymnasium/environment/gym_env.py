"""The environment, made from the section `env` of app.yaml, and a wrapper for images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from PIL import Image

from surreal.envs import ShownEnv, WrapperSpec, make_env, record_video, render_modes
from surreal.rlx.client.options import Options

GymEnv = gymnasium.Env[Any, Any]


def make(options: Options, *, training: bool, is_shown: Callable[[], bool]) -> GymEnv:
    """Make the environment with the wrappers that the program applies; the server applies the others.

    Args:
        options: settings of app.yaml.
        training: False leaves out wrappers that are for training only.
        is_shown: called at every step; returns whether to show the environment in a window.
    """
    env_id = options.get("env/id")
    can_draw = "rgb_array" in render_modes(env_id)
    env = make_env(
        env_id,
        kwargs=options.get("env/kwargs", {}),
        wrappers=[
            WrapperSpec(entry.get("name") or entry["class"], entry.get("args") or {}, entry.get("training_only"))
            for entry in options.get("env/wrappers", [])
            if entry.get("on_client")
        ],
        training=training,
        render_mode="rgb_array" if can_draw else None,
    )
    if options.get("environment/record", False):
        env = record_video(env, options.get("environment/out_dir", "videos"))
    return ShownEnv(env, is_shown) if can_draw else env


class Screen(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Turns images into small gray ones.

    Args:
        env: environment whose observations are images [height, width, 3] of bytes.
        shape: height and width of the result.
        rows: first and last row of the part that is used; None: all.
    """

    def __init__(self, env: GymEnv, shape: tuple[int, int] = (42, 42), rows: tuple[int, int] | None = None) -> None:
        super().__init__(env)
        self._size = (int(shape[1]), int(shape[0]))
        self._rows = slice(None) if rows is None else slice(*rows)
        self.observation_space = gymnasium.spaces.Box(0, 255, tuple(shape), np.uint8)

    def observation(self, observation: Any) -> Any:
        """Crop, turn gray, and make smaller."""
        image = Image.fromarray(observation[self._rows]).convert("L")
        return np.asarray(image.resize(self._size, Image.Resampling.BILINEAR))
