"""How a person sees an environment that a policy plays: in a window, in the terminal, or in video files."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium

from surreal.base.errors import BusyError
from surreal.base.system.files import FileLock
from surreal.config import Config
from surreal.envs import record_video
from surreal.envs.terminal import Screen, TerminalView
from surreal.envs.terminal.view import choose_mode
from surreal.run.build.environments import build_env


@dataclass(frozen=True)
class View:
    """One of them, or none: an environment draws in one way at a time."""

    record: Path | None = None  #: folder of videos, one an episode
    show: bool = False  #: a window
    screen: Screen | None = None  #: the terminal

    def __post_init__(self) -> None:
        if sum((self.record is not None, self.show, self.screen is not None)) > 1:
            raise ValueError("window, terminal and videos exclude each other")

    @property
    def is_any(self) -> bool:
        """Whether anything is to be seen."""
        return self.show or self.record is not None or self.screen is not None

    def make_env(self, config: Config, stack: ExitStack, *, name: str) -> gymnasium.Env[Any, Any]:
        """Make an environment of the evaluation that is seen so.

        Args:
            config: of the run.
            stack: closes it.
            name: begins the names of videos.

        Raises:
            BusyError: another process records into the folder.
            EnvError: the environment cannot be made, or not be seen so.
        """
        mode = None
        if self.record is not None:
            stack.callback(_claim_videos(self.record).release, is_removed=True)
            mode = "rgb_array"
        elif self.show:
            mode = "human"
        elif self.screen is not None:
            mode = _terminal_mode(config)
        env = build_env(config, training=False, render_mode=mode)
        stack.callback(env.close)
        if self.record is not None:
            env = record_video(env, str(self.record), name=name)
            stack.callback(env.close)
        return env if self.screen is None else TerminalView(env, self.screen)


def _terminal_mode(config: Config) -> str:
    plain = build_env(config, training=False)
    modes = plain.metadata.get("render_modes", ())
    plain.close()
    return choose_mode(lambda mode: build_env(config, training=False, render_mode=mode), modes)


def _claim_videos(folder: Path) -> FileLock:
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "play.lock")
    if not lock.acquire():
        raise BusyError(f"{folder} gets the videos of {lock.holder()}; name another folder")
    return lock
