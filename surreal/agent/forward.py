"""The forward pass that acts, torch's or NumPy's on the same parameters, whichever takes less time; and whether actions
that follow from it, and values, fit the environment, which `Agent` asks in its first turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from surreal.base import tree
from surreal.base.errors import UserCodeError, describe_method
from surreal.base.pytorch import Module, to_array
from surreal.base.types import Obs
from surreal.model import Categorical, Distribution
from surreal.model.in_numpy import NumpyCategorical, NumpyPass, NumpyPolicy

#: Times that each of both is measured; the shortest counts.
_REPETITIONS = 5

ActMethod = TypeVar("ActMethod", bound=Callable[..., Any])


def reads_arrays(act: ActMethod) -> ActMethod:
    """Mark an `_act` that takes observations, and the output of `compute`, in arrays as well as in tensors.

    An `_act` without this mark, as in a subclass, gets tensors.
    """
    act.reads_arrays = True  # type: ignore[attr-defined]
    return act


def choose_numpy(model: Module, obs: Obs, state: Tensor | None) -> NumpyPass | None:
    """Measure both passes on a batch, and return NumPy's if it is faster, else None. The caller holds the model's lock
    and is in inference mode; a recurrent model has a state.

    The same random numbers give the same actions in both, up to rounding. Where torch's deterministic algorithms are
    switched on, as in deterministic runs, the measurement would decide on the last bits, so it is always None.
    """
    if torch.are_deterministic_algorithms_enabled():
        return None
    inputs = (obs,) if state is None else (obs, state)
    if not model.is_materialized:
        model(*inputs)  # makes the layers
    found = NumpyPass.of(model)
    if found is None:
        return None
    arrays = [tree.map_leaves(to_array, each) for each in inputs]
    numpy_s = min(_time_s(lambda: found(*arrays)) for _ in range(_REPETITIONS))
    torch_s = min(_time_s(lambda: model(*inputs)) for _ in range(_REPETITIONS))
    return None if torch_s < numpy_s else found


def _time_s(call: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    call()
    return time.perf_counter() - started_s


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
