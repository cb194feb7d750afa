"""From the leaves of an observation to numbers that a network reads."""

from __future__ import annotations

import torch
from torch import Tensor

from surreal import tree
from surreal.types import Obs


def read_leaf(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Give a leaf as float32, its own axes flattened into one.

    Args:
        tensor: [..., *shape]; uint8 is scaled by 1/255 (images), other integers and booleans are taken as numbers.
        shape: of one; () is a scalar (Discrete), which is one feature.

    Returns:
        [..., features] float32

    Raises:
        ValueError: the tensor has another shape.
    """
    own = len(shape)
    if own and tensor.shape[-own:] != shape:
        raise ValueError(f"observations are {list(tensor.shape)}, but one of them is {list(shape)}")
    if tensor.dtype is torch.uint8:
        tensor = tensor.to(torch.float32).mul_(1.0 / 255.0)
    elif tensor.dtype is not torch.float32:
        tensor = tensor.to(torch.float32)
    if own == 1:
        return tensor
    return tensor.unsqueeze(-1) if own == 0 else tensor.flatten(tensor.dim() - own)


def flatten_obs(obs: Obs) -> Tensor:
    """Concatenate all leaves of a batch: dict keys sorted, tuple items in place.

    Args:
        obs: [B, *obs_shape] tensor, or nested dicts and tuples of them.

    Returns:
        [B, features] float32; see `read_leaf`.
    """
    parts = [read_leaf(leaf, tuple(leaf.shape[1:])) for leaf in tree.leaves(obs)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
