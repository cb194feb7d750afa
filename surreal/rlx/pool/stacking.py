"""Stacks the last frames of a session, so that clients send each frame once (see `env.frame_stack`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surreal.base.specs import ArraySpec
from surreal.rlx.pool.states import Leaves


class FrameStacker:
    """Frames of one session; the first of an episode fills the stack.

    Args:
        frame: of one frame.
        depth: frames of a stack, >= 1.
    """

    def __init__(self, frame: ArraySpec, depth: int) -> None:
        self._shape = frame.shape
        self._stack: NDArray[np.generic] = np.zeros((depth, *frame.shape), frame.dtype)

    def push(self, leaves: Leaves, *, is_first: bool) -> Leaves:
        """Add a frame, and give the stack [depth, *shape], oldest first, in memory of its own."""
        frame = leaves[0].reshape(self._shape)
        if is_first:
            stack = np.repeat(frame[None], len(self._stack), axis=0)
        else:
            stack = np.concatenate((self._stack[1:], frame[None]))
        self._stack = stack
        return [stack]
