"""Watches episodes of the plain loop: raw return and length."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from surreal.base.types import Obs
from surreal.envs.plain.base import Env, Wrapper

#: Episodes that are kept, and of them those that a line is about.
_KEPT = 1000
_SHOWN = 100


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class EpisodeMonitor(Wrapper):
    """Counts return and length of every episode, puts them into `info["episode"]` of its last step, and tells of them.

    They are those of whole episodes with the environment's own rewards, also where training sees an end at each lost
    life and the signs of rewards only (`Atari`).

    Args:
        env: the environment to watch.
        report_every_s: tell how it goes at the end of an episode, but not more often than this, s, >= 0; None: never.
        report: takes the line.

    Attributes:
        episodes: (return, length) of the last 1000 finished episodes, the newest at the end.
        num_episodes: finished episodes.
        num_steps: steps in them.
    """

    def __init__(
        self,
        env: Env,
        *,
        report_every_s: float | None = 10.0,
        report: Callable[[str], object] = _print,
    ) -> None:
        if report_every_s is not None and report_every_s < 0:
            raise ValueError(f"report_every_s is {report_every_s}; it must be >= 0, or None")
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
        """Start an episode."""
        self._return, self._length = 0.0, 0
        obs, info = super().reset(seed=seed)
        self._count_raw(info)
        return obs, info

    def step(self, action: Any) -> tuple[Obs, float, bool, dict[str, Any]]:
        """Apply one action."""
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
