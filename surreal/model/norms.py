"""Normalization of a layer's outputs: of each row, or over batches.

    norm = make_norm(read_norm({"type": "batch", "warm_up": 10_000}), units=64)
    with batch_statistics(model.critic):        # the learner's update, in this thread only
        q = model.critic(obs, action)

Elsewhere (agents, evaluation, target networks), batch norms use their running statistics. Those are buffers, so they
are part of the parameters that are published, and of checkpoints.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn.functional import layer_norm, rms_norm

from surreal.base.ranges import NonNegative, NonNegativeInt, ShareBelowOne, checked

#: How a configuration names one: `layer`, `rms`, `batch`, or `{type: batch, momentum, warm_up, r_limit, d_limit}`.
NormName = str | Mapping[str, Any]

#: Added to variances.
ROW_EPSILON, BATCH_EPSILON = 1e-5, 1e-3


@checked
@dataclass(frozen=True)
class BatchNormSettings:
    """Settings of batch renormalization; the defaults are those of CrossQ (Bhatt et al. 2024, arXiv:1902.05605)."""

    #: share of the running statistics that an update keeps; raising it averages over more batches
    momentum: ShareBelowOne = 0.99
    warm_up: NonNegativeInt = 100_000  #: updates in which batches are normalized by their own statistics alone
    r_limit: Annotated[float, Ge(1)] = 3.0  #: largest ratio of the batch's and the running deviation that is corrected
    d_limit: NonNegative = 5.0  #: largest difference of their means that is corrected, in running deviations


#: A normalization as `read_norm` reads it.
NormKind = Literal["layer", "rms"] | BatchNormSettings


def read_norm(norm: NormName | None) -> NormKind | None:
    """Read a normalization's name, or None; raises `ValueError` if it, or a setting of it, is not possible."""
    if norm is None:
        return None
    settings: dict[str, Any] = {"type": norm} if isinstance(norm, str) else dict(norm)
    name = settings.pop("type", None)
    if name == "batch":
        try:
            return BatchNormSettings(**settings)
        except TypeError as error:
            raise ValueError(f"norm is {norm!r}; batch has momentum, warm_up, r_limit and d_limit") from error
        except ValueError as error:
            raise ValueError(f"norm.{error}") from error
    if name not in ("layer", "rms"):
        raise ValueError(f"norm {name!r} is unknown; use one of layer, rms, batch")
    if settings:
        raise ValueError(f"norm is {norm!r}; {name} has no settings")
    return "layer" if name == "layer" else "rms"


def make_norm(kind: NormKind, units: int, members: int | None = None) -> Norm:
    """Make a layer's normalization, for features [..., units], or for networks at once, [members, B, units]."""
    if isinstance(kind, BatchNormSettings):
        return BatchRenorm(units, kind, members)
    return RowNorm(units, members, is_centered=kind == "layer")


class Norm(nn.Module):
    """Base of normalizations, with a learned scale and shift for each unit."""

    def __init__(self, units: int, members: int | None = None) -> None:
        super().__init__()
        self.shape = (units,) if members is None else (members, 1, units)
        self.scale = nn.Parameter(torch.ones(self.shape))
        self.shift = nn.Parameter(torch.zeros(self.shape))


class RowNorm(Norm):
    """Normalizes each row: layer norm (Ba et al. 2016, arXiv:1607.06450), or without subtracting the mean, RMS norm.

    Args:
        is_centered: whether to subtract the row's mean.
    """

    def __init__(self, units: int, members: int | None = None, *, is_centered: bool = True) -> None:
        super().__init__(units, members)
        self.is_centered = is_centered

    def forward(self, features: Tensor, members: int | None = None) -> Tensor:
        """Normalize features; `members` is how many networks of the first these are, None: all."""
        normalize = layer_norm if self.is_centered else rms_norm
        rows = normalize(features, features.shape[-1:], eps=ROW_EPSILON)
        return torch.addcmul(of_first(self.shift, members), rows, of_first(self.scale, members))

    def extra_repr(self) -> str:
        return f"{self.shape}, is_centered={self.is_centered}"


class BatchRenorm(Norm):
    """Batch renormalization: Ioffe 2017, algorithm 1 (arXiv:1702.03275).

    In an update, y = scale * ((x - batch mean) / batch deviation * r + d) + shift, with r = batch deviation / running
    deviation, and d = (batch mean - running mean) / running deviation, both limited and without gradient. During the
    warm-up, r = 1 and d = 0. Otherwise, y uses the running statistics.
    """

    mean: Tensor
    variance: Tensor
    batches: Tensor

    def __init__(self, units: int, settings: BatchNormSettings, members: int | None = None) -> None:
        super().__init__(units, members)
        self.settings = settings
        self.register_buffer("mean", torch.zeros(self.shape))
        self.register_buffer("variance", torch.ones(self.shape))
        self.register_buffer("batches", torch.zeros(()))

    def forward(self, features: Tensor, members: int | None = None) -> Tensor:
        """Normalize features; `members` is how many networks of the first these are, None: all."""
        tensors = (self.scale, self.shift, self.mean, self.variance)
        scale, shift, mean, variance = (of_first(tensor, members) for tensor in tensors)
        if self not in _thread.layers:
            factor = scale * (variance + BATCH_EPSILON).rsqrt()
            return torch.addcmul(shift - mean * factor, features, factor)
        axes = tuple(range(features.dim() - 1)) if len(self.shape) == 1 else (1,)
        batch_variance, batch_mean = torch.var_mean(features, axes, correction=0, keepdim=len(self.shape) > 1)
        deviation = (batch_variance + BATCH_EPSILON).sqrt()
        with torch.no_grad():
            settings, running = self.settings, (variance + BATCH_EPSILON).sqrt()
            is_warm = self.batches >= settings.warm_up
            r = torch.where(is_warm, (deviation / running).clamp(1.0 / settings.r_limit, settings.r_limit), 1.0)
            d = ((batch_mean - mean) / running).clamp(-settings.d_limit, settings.d_limit)
            d = torch.where(is_warm, d, 0.0)
            mean.lerp_(batch_mean, 1.0 - settings.momentum)
            variance.lerp_(batch_variance, 1.0 - settings.momentum)
            self.batches.add_(1.0)
        return torch.addcmul(shift, (features - batch_mean) / deviation * r + d, scale)

    def extra_repr(self) -> str:
        return f"{self.shape}, {self.settings}"


def of_first(parameter: Tensor, members: int | None) -> Tensor:
    """Return the part of a parameter [members, ...] that belongs to the first networks; None: all."""
    return parameter if members is None else parameter[:members]


class _ThreadLayers(threading.local):
    """Batch norms that this thread computes by the statistics of batches."""

    layers: Collection[nn.Module] = ()


_thread = _ThreadLayers()


@contextmanager
def batch_statistics(network: nn.Module) -> Iterator[None]:
    """Use and count the batches that this thread computes inside of the block, in a network's batch norms."""
    before = _thread.layers
    _thread.layers = {module for module in network.modules() if isinstance(module, BatchRenorm)}
    try:
        yield
    finally:
        _thread.layers = before
