"""Shows or records the environment of a plain loop."""

from __future__ import annotations

from typing import Any

from surreal.base.errors import EnvError
from surreal.base.types import Obs
from surreal.envs.plain.base import Env, Wrapper


class Visualization(Wrapper):
    """Opens a window or writes videos; does nothing unless asked to.

    Args:
        env: the environment, not yet reset.
        show_ui: show every step in a window, at the pace of the environment.
        video_folder: write videos of episodes there; excludes `show_ui`.
        record_every: record each so many episodes, >= 1.

    Raises:
        EnvError: the environment cannot be drawn, or moviepy is missing.
    """

    def __init__(
        self, env: Env, *, show_ui: bool = False, video_folder: str | None = None, record_every: int = 1
    ) -> None:
        if show_ui and video_folder is not None:
            raise ValueError("show_ui and video_folder exclude each other: an environment draws in one way at a time")
        super().__init__(env)
        if show_ui:
            env.render_to("human")
        elif video_folder is not None:
            env.record_to(video_folder, record_every)

    def reset(self, *, seed: int | None = None) -> tuple[Obs, dict[str, Any]]:
        """Start an episode."""
        try:
            return super().reset(seed=seed)
        except Exception as error:
            if type(error).__module__.partition(".")[0] == "pygame":
                raise EnvError(f"the environment cannot be shown here: {error}; is there a display?") from error
            raise
