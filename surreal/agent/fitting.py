"""Do an agent's actions, and the values of its model, fit the environment? Asked by `Agent` in its first turns."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.base.errors import UserCodeError, describe_method
from surreal.model import Categorical, Distribution
from surreal.model.in_numpy import NumpyCategorical, NumpyPolicy


def check_actions(method: Any, space: gymnasium.Space[Any], actions: NDArray[Any], count: int) -> None:
    """Refuse actions for `count` rows, which `method` gave, whose number, shape, dtype or range does not fit."""
    shape = (count, *(space.shape or ()))
    kinds = "fiu" if isinstance(space, spaces.Box) and np.dtype(space.dtype).kind == "f" else "iub"
    if actions.shape != shape:
        problem = f"gives actions of shape {actions.shape} for {count} rows; {space} needs {shape}"
    elif actions.dtype.kind not in kinds:
        problem = f"gives actions of dtype {actions.dtype}; {space} needs {'numbers' if 'f' in kinds else 'integers'}"
    else:
        problem = _out_of_range(space, actions)
    if problem:
        raise UserCodeError(f"{describe_method(method)} {problem}")


def check_values(method: Any, space: gymnasium.Space[Any], shape: tuple[int, ...]) -> None:
    """Refuse values of actions, which `method` gave in this shape, that are not [N, n] of a Discrete space."""
    if not isinstance(space, spaces.Discrete):
        raise UserCodeError(f"{describe_method(method)} gives values of single actions, but actions are {space}")
    if len(shape) != 2 or shape[1] != space.n:
        problem = f"gives values of shape {shape}; the environment has {space.n} actions, so it must be [N, {space.n}]"
        raise UserCodeError(f"{describe_method(method)} {problem}")


def check_policy(method: Any, space: gymnasium.Space[Any], policy: Distribution | NumpyPolicy) -> None:
    """Refuse a policy over single actions, which `method` gave, that is not over those of a Discrete space.

    A sample of a policy that is too narrow is in the space all the same, so `check_actions` would not notice.
    """
    if not isinstance(policy, Categorical | NumpyCategorical) or not isinstance(space, spaces.Discrete):
        return
    count = policy.logits.shape[-1]
    if count != space.n:
        problem = f"gives a policy over {count} actions; the environment has {space.n}"
        raise UserCodeError(f"{describe_method(method)} {problem}")


def _out_of_range(space: gymnasium.Space[Any], actions: NDArray[Any]) -> str:
    if isinstance(space, spaces.Box):
        # Its bounds are not looked at: samples of a policy leave them, and the environment gets them clipped.
        is_good = np.isfinite(actions)
    elif isinstance(space, spaces.MultiBinary):
        is_good = (actions == 0) | (actions == 1)
    else:
        is_good = (actions >= 0) & (actions < (space.n if isinstance(space, spaces.Discrete) else space.nvec))  # type: ignore[attr-defined]
    return "" if is_good.all() else f"gives the action {actions[~is_good][0]}, which is not in {space}"
