"""The forward pass that acts: torch's, or NumPy's on the same parameters, whichever takes less time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from surreal.base import tree
from surreal.base.pytorch import Module, to_array
from surreal.base.types import Obs
from surreal.model.in_numpy import NumpyPass

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
    """Measure both passes on a batch, and return NumPy's if it is faster, else None.

    The same random numbers give the same actions in both, up to rounding. Where torch's deterministic algorithms are
    switched on, as in deterministic runs, the measurement would decide on the last bits, so it is always None.

    Args:
        model: the caller holds its lock and is in inference mode.
        obs: [N, *obs_shape] tensor on the model's device, or nested dicts and tuples of them.
        state: [N, *state_shape] of a recurrent model, else None.
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
