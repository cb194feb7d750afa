"""Wrappers for a plain loop: stacked frames, a monitor of episodes, and a window or videos."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from surreal.base.errors import EnvError
from surreal.base.ranges import NonNegative, PositiveInt, checked
from surreal.base.types import Obs
from surreal.envs.plain.base import Env, Wrapper

#: Episodes that are stored, and episodes in the means of a report.
_KEPT = 1000
_SHOWN = 100
_print = partial(print, flush=True)


class FrameStack(Wrapper):
    """Observations are the last frames, oldest first; an episode begins with its first frame repeated.

    `info["frames"]` holds the frames, the same objects in each step, so that the sender stores each frame once.

    Args:
        env: gives single frames.
        num_frames: frames in a stack; a higher number looks further back and costs more computation.
    """

    @checked
    def __init__(self, env: Env, num_frames: PositiveInt) -> None:
        super().__init__(env)
        self._frame_space = env.observation_space
        self.observation_space = batch_space(self._frame_space, num_frames)
        self._frames: deque[Obs] = deque(maxlen=num_frames)

    def reset(self, *, seed: int | None = None) -> tuple[Obs, dict[str, Any]]:
        frame, info = super().reset(seed=seed)
        return self._begin(frame), self._tell(info)

    def step(self, action: Any) -> tuple[Obs, float, bool, dict[str, Any]]:
        frame, reward, done, info = super().step(action)
        if info.get("phantom", False):
            return self._begin(frame), reward, done, self._tell(info)
        self._frames.append(frame)
        return self._stack(), reward, done, self._tell(info)

    def _begin(self, frame: Obs) -> Obs:
        self._frames.extend([frame] * (self._frames.maxlen or 1))
        return self._stack()

    def _stack(self) -> Obs:
        # A new array each time, because a loop holds both obs and new_obs.
        stack: Any = create_empty_array(self._frame_space, n=len(self._frames))
        return concatenate(self._frame_space, tuple(self._frames), stack)

    def _tell(self, info: dict[str, Any]) -> dict[str, Any]:
        return {**info, "frames": tuple(self._frames)}


class EpisodeMonitor(Wrapper):
    """Counts the return and length of every episode, adds them to `info["episode"]` of its last step, and reports
    means.

    They are of whole episodes with raw rewards, also if training sees an end at each lost life (`Atari`).

    Args:
        env: the environment to watch.
        report_every_s: least time between two reports, s; None: no reports.
        report: called with each report.

    Attributes:
        episodes: (return, length) of the last 1000 finished episodes, newest last.
        num_episodes: finished episodes.
        num_steps: steps in them.
    """

    @checked
    def __init__(
        self, env: Env, *, report_every_s: NonNegative | None = 10.0, report: Callable[[str], object] = _print
    ) -> None:
        super().__init__(env)
        self.episodes: list[tuple[float, int]] = []
        self.num_episodes = 0
        self.num_steps = 0
        self._report_every_s = report_every_s
        self._report = report
        self._next_report_s = 0.0
        self._return = 0.0
        self._length = 0

    def reset(self, *, seed: int | None = None) -> tuple[Obs, dict[str, Any]]:
        self._return, self._length = 0.0, 0
        obs, info = super().reset(seed=seed)
        self._count_raw(info)
        return obs, info

    def step(self, action: Any) -> tuple[Obs, float, bool, dict[str, Any]]:
        obs, reward, done, info = super().step(action)
        if "raw_episode" in info:
            self._count_raw(info)
        elif info.get("phantom", False):
            self._return, self._length = 0.0, 0
        else:
            self._return += reward
            self._length += 1
            if done:
                self._count(self._return, self._length, info)
        return obs, reward, done, info

    def _count_raw(self, info: dict[str, Any]) -> None:
        if (episode := info.get("raw_episode")) is not None:
            score, length = episode
            self._count(score, length, info)

    def _count(self, score: float, length: int, info: dict[str, Any]) -> None:
        info["episode"] = {"return": score, "length": length}
        self.episodes.append((score, length))
        del self.episodes[:-_KEPT]
        self.num_episodes += 1
        self.num_steps += length
        now = time.monotonic()
        if self._report_every_s is not None and now >= self._next_report_s:
            self._next_report_s = now + self._report_every_s
            shown = self.episodes[-_SHOWN:]
            mean_return, mean_length = (sum(column) / len(shown) for column in zip(*shown, strict=True))
            means = f"mean return {mean_return:.1f}, mean length {mean_length:.0f} of the last {len(shown)}"
            self._report(f"episode {self.num_episodes}: {means}; {self.num_steps} steps")


class Visualization(Wrapper):
    """Shows the environment in a window or writes videos; by default it does neither.

    Args:
        env: the environment, not yet reset.
        show_ui: show every step in a window, at the pace of the environment.
        video_folder: write videos of episodes there; excludes `show_ui`.
        record_every: episodes from one recording to the next.

    Raises:
        EnvError: the environment cannot be drawn, or moviepy is missing.
    """

    @checked
    def __init__(
        self, env: Env, *, show_ui: bool = False, video_folder: str | None = None, record_every: PositiveInt = 1
    ) -> None:
        if show_ui and video_folder is not None:
            raise ValueError("show_ui and video_folder exclude each other: an environment has one render mode")
        super().__init__(env)
        if show_ui:
            env.render_to("human")
        elif video_folder is not None:
            env.record_to(video_folder, record_every)

    def reset(self, *, seed: int | None = None) -> tuple[Obs, dict[str, Any]]:
        try:
            return super().reset(seed=seed)
        except Exception as error:
            if type(error).__module__.partition(".")[0] == "pygame":
                raise EnvError(f"the environment cannot be shown here: {error}; is there a display?") from error
            raise
