"""Stacks the last frames of an environment in the plain loop."""

from __future__ import annotations

from collections import deque
from typing import Any

from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from surreal.base.types import Obs
from surreal.envs.plain.base import Env, Wrapper


class FrameStack(Wrapper):
    """Observations are the last frames, oldest first; an episode begins with its first frame repeated.

    The frames themselves are in `info["frames"]`, the same objects step after step, which tells the sender that
    observations are stacks: it stores each frame once.

    Args:
        env: gives single frames.
        num_frames: of a stack, >= 1; more looks further back, for more computation.
    """

    def __init__(self, env: Env, num_frames: int) -> None:
        if num_frames < 1:
            raise ValueError(f"num_frames is {num_frames}; it must be >= 1")
        super().__init__(env)
        self._frame_space = env.observation_space
        self.observation_space = batch_space(self._frame_space, num_frames)
        self._frames: deque[Obs] = deque(maxlen=num_frames)

    def reset(self, *, seed: int | None = None) -> tuple[Obs, dict[str, Any]]:
        """Start an episode."""
        frame, info = super().reset(seed=seed)
        return self._begin(frame), self._tell(info)

    def step(self, action: Any) -> tuple[Obs, float, bool, dict[str, Any]]:
        """Apply one action."""
        frame, reward, done, info = super().step(action)
        if info.get("phantom", False):
            return self._begin(frame), reward, done, self._tell(info)
        self._frames.append(frame)
        return self._stack(), reward, done, self._tell(info)

    def _begin(self, frame: Obs) -> Obs:
        self._frames.extend([frame] * (self._frames.maxlen or 1))
        return self._stack()

    def _stack(self) -> Obs:
        # A new array each time: a loop holds obs and new_obs side by side.
        stack: Any = create_empty_array(self._frame_space, n=len(self._frames))
        return concatenate(self._frame_space, tuple(self._frames), stack)

    def _tell(self, info: dict[str, Any]) -> dict[str, Any]:
        return {**info, "frames": tuple(self._frames)}
