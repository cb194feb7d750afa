"""From an observation as the environment gives it to the features that a dense network reads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from surreal.specs import ObsSpec
from surreal.types import Obs


def count_features(obs_spec: ObsSpec) -> int:
    """Count what `flatten_obs` gives for each row."""
    return sum(int(np.prod(leaf.shape, dtype=np.int64)) for leaf in obs_spec.leaves)


def flatten_obs(obs: Obs) -> Tensor:
    """Concatenate all leaves of a batch: dict keys sorted, tuple items in place.

    Args:
        obs: [B, *obs_shape] tensor, or nested dicts and tuples of them. uint8 is scaled by 1/255 (images); other
            integers and booleans are taken as numbers.

    Returns:
        [B, features] float32
    """
    if isinstance(obs, Tensor):
        return _features(obs)
    leaves: list[Tensor] = []
    _collect(obs, leaves)
    return torch.cat(leaves, dim=1)


def _collect(obs: Obs, leaves: list[Tensor]) -> None:
    if isinstance(obs, Mapping):
        for key in sorted(obs):
            _collect(obs[key], leaves)
    elif isinstance(obs, tuple | list):
        for item in obs:
            _collect(item, leaves)
    else:
        leaves.append(_features(obs))


def _features(leaf: Tensor) -> Tensor:
    if leaf.dtype is torch.uint8:
        leaf = leaf.to(torch.float32).mul_(1.0 / 255.0)
    elif leaf.dtype is not torch.float32:
        leaf = leaf.to(torch.float32)
    if leaf.dim() == 2:
        return leaf
    # A scalar leaf (Discrete) is one feature.
    return leaf.unsqueeze(1) if leaf.dim() == 1 else leaf.flatten(1)
