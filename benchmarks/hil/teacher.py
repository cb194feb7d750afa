"""The scripted teacher: an expert that lifts the cube, and the rule by which it takes over and lets go.

The rule: after 3 s without progress, the teacher acts for 1 s, and lets go. Progress is that the cube comes at least
1 cm nearer to the gripper, or higher above its place, than ever since the teacher last acted, or since the episode
began.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.hil.cube import REACH_M, STEP_S, Scene, decode

#: Time without progress until the teacher takes over, and for which it acts, s.
PATIENCE_S, TURN_S = 3.0, 1.0
#: What counts as progress, m.
_LEAST_PROGRESS_M = 0.01
#: How far the cube may be from the gripper to be held, m.
_HELD_M = 0.045
#: How exactly the gripper must be above the cube to go down, and how low it must be to close, m.
_ABOVE_M, _AROUND_M, _CLEARANCE_M = 0.015, 0.04, 0.1
_LOW_M = -0.012
#: Share of its way by which the gripper closes in a step, so that the fingers are there before it lifts.
_CLOSE = 0.25


class Expert:
    """Chooses every action: go above the cube, go down, close, lift. It has no memory, so it can begin anywhere."""

    def __call__(self, obs: NDArray[np.float32], action: Any) -> NDArray[np.float32]:
        return act(decode(obs))


class Teacher:
    """Takes over by the rule, and otherwise leaves the action to the policy."""

    def __init__(self) -> None:
        self._patience, self._turn = round(PATIENCE_S / STEP_S), round(TURN_S / STEP_S)
        self._table_m, self._best = 0.0, -np.inf
        self._idle = self._left = 0

    def reset(self, obs: NDArray[np.float32]) -> None:
        self._table_m = float(decode(obs).cube[2])
        self._idle = self._left = 0
        self._best = self._progress(decode(obs))

    def __call__(self, obs: NDArray[np.float32], action: Any) -> NDArray[np.float32] | None:
        scene = decode(obs)
        if self._left == 0:
            self._watch(scene)
        if self._left == 0:
            return None
        self._left -= 1
        if self._left == 0:  # it lets go after this action
            self._idle, self._best = 0, -np.inf
        return act(scene)

    def _watch(self, scene: Scene) -> None:
        """Count the steps without progress; too many begin a turn of the teacher."""
        progress = self._progress(scene)
        if progress >= self._best + _LEAST_PROGRESS_M:
            self._idle, self._best = 0, progress
            return
        self._idle += 1
        if self._idle > self._patience:
            self._left = self._turn

    def _progress(self, scene: Scene) -> float:
        lift = float(scene.cube[2]) - self._table_m
        return lift - float(np.linalg.norm(scene.cube - scene.gripper))


def act(scene: Scene) -> NDArray[np.float32]:
    """Return the expert's action [4]."""
    way = scene.cube - scene.gripper
    aside = float(np.linalg.norm(way[:2]))
    if scene.closed > 0.0 and np.linalg.norm(way) < _HELD_M:
        return _action((0.0, 0.0, REACH_M if scene.closed > 1.0 - _CLOSE / 2 else 0.0), _CLOSE)
    if scene.closed > 0.0:
        return _action((0.0, 0.0, 0.0), -1.0)
    if aside <= _ABOVE_M and way[2] >= _LOW_M:
        return _action((0.0, 0.0, 0.0), _CLOSE)
    if aside > _AROUND_M:
        return _action((way[0], way[1], way[2] + _CLEARANCE_M), 0.0)
    return _action((way[0], way[1], way[2] if aside <= 2 * _ABOVE_M else 0.0), 0.0)


def _action(move_m: Any, grip: float) -> NDArray[np.float32]:
    return np.clip(np.append(np.asarray(move_m) / REACH_M, grip), -1.0, 1.0).astype(np.float32)
