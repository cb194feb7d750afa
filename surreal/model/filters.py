"""Running mean and deviation of observations and of returns: they travel with the parameters, as buffers.

Only a learner changes them, from the batches that it consumed: each env step counts once, whichever agent took it.
Agents apply what they are sent, so a recorded action was computed with the statistics of its version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from surreal.base import tree
from surreal.base.pytorch import is_recording
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs

#: Normalized values further from 0 than this are cut.
LIMIT = 10.0


class Moments(NamedTuple):
    """Statistics of some vectors [*shape]."""

    total: Tensor  #: number of them, a scalar
    mean: Tensor
    squares: Tensor  #: sum of squared deviations


class RunningMoments(nn.Module):
    """Count, mean and sum of squared deviations of all vectors seen, in float64."""

    count: Tensor
    mean: Tensor
    squares: Tensor

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("squares", torch.zeros(shape, dtype=torch.float64))
        self._fresh: Moments | None = None
        self._scale: tuple[tuple[Tensor, ...], list[int], tuple[Tensor, Tensor]] | None = None

    def scale(self) -> tuple[Tensor, Tensor]:
        """Return mean and deviation, [*shape] float32; computed again only when a buffer's counter has changed."""
        if is_recording() or torch.compiler.is_compiling() or self.mean.is_inference():
            return self.mean.to(torch.float32), self.deviation().to(torch.float32)
        buffers = self.count, self.mean, self.squares
        changes = [buffer._version for buffer in buffers]
        known = self._scale
        if known is None or known[1] != changes or any(a is not b for a, b in zip(known[0], buffers, strict=True)):
            with torch.inference_mode(False), torch.no_grad():  # a learner may use what acting computed
                scale = self.mean.to(torch.float32), self.deviation().to(torch.float32)
            self._scale = known = buffers, changes, scale
        return known[2]

    def __getstate__(self) -> dict[str, Any]:
        """Leave the scale out of copies, whose buffers count their changes from 0."""
        return {**self.__dict__, "_scale": None}

    @torch.no_grad()
    def update(self, values: Tensor) -> None:
        """Count further vectors [N, *shape] in; none is fine."""
        if len(values) == 0:
            return
        values = values.to(torch.float64)
        mean = values.mean(0)
        found = Moments(mean.new_tensor(len(values)), mean, (values - mean).square().sum(0))
        self.merge(found)
        if self._fresh is not None:
            self._fresh = _merged(self._fresh, found)

    @torch.no_grad()
    def merge(self, found: Moments) -> None:
        """Count in vectors of which these are the moments."""
        merged = _merged(Moments(self.count, self.mean, self.squares), found)
        for mine, new in zip((self.count, self.mean, self.squares), merged, strict=True):
            mine.copy_(new)

    def track(self) -> None:
        """From now on, also keep the moments of new counts separately; earlier ones are dropped."""
        self._fresh = Moments(*(torch.zeros_like(each) for each in (self.count, self.mean, self.squares)))

    def fresh(self) -> Moments:
        """The moments counted since `track`; before that, empty ones."""
        if self._fresh is None:
            return Moments(*(torch.zeros_like(each) for each in (self.count, self.mean, self.squares)))
        return self._fresh

    def deviation(self) -> Tensor:
        """Standard deviation [*shape] float64 of all of them; 1 before there are two."""
        variance = self.squares / self.count.clamp(min=1.0)
        return torch.where(self.count > 1.0, variance, torch.ones_like(variance)).add(1e-8).sqrt()


class ObsFilter(nn.Module):
    """Shifts and scales the real parts of observations to mean 0 and deviation 1; others pass as they are."""

    def __init__(self, obs_spec: ObsSpec) -> None:
        super().__init__()
        self._spec = obs_spec
        # A leaf of integers or booleans (an image, a choice) is in a range that networks can read.
        self._is_real = [leaf.dtype.kind == "f" for leaf in obs_spec.leaves]
        self.moments = nn.ModuleList(RunningMoments(leaf.shape) for leaf in obs_spec.leaves if leaf.dtype.kind == "f")

    @property
    def is_empty(self) -> bool:
        """Whether it has real parts to count, and has counted none."""
        return any(not cast(RunningMoments, moments).count for moments in self.moments)

    def forward(self, obs: Obs) -> Obs:
        """Return observations [..., *obs_shape] normalized, float32 where they were real."""
        return self.map_real(_normalise, obs)

    def map_real(self, normalise: Callable[[Any, Any], Any], obs: Obs) -> Obs:
        """Return observations with `normalise(leaf, moments)` in place of each real leaf."""
        moments = iter(self.moments)
        leaves = zip(tree.leaves(obs), self._is_real, strict=True)
        return self._spec.unflatten([normalise(leaf, next(moments)) if is_real else leaf for leaf, is_real in leaves])

    def update(self, obs: Obs, is_step: Tensor | None = None) -> None:
        """Count the observations of steps in.

        Args:
            obs: [T, B, *obs_shape], or nested dicts and tuples of them; [B, *obs_shape] without `is_step`.
            is_step: [T, B] bool; observations of other rows are not counted. None: all are.
        """
        real = [leaf for leaf, is_real in zip(tree.leaves(obs), self._is_real, strict=True) if is_real]
        for moments, leaf in zip(self.moments, real, strict=True):
            cast(RunningMoments, moments).update(leaf if is_step is None else leaf[is_step])


class ReturnFilter(nn.Module):
    """Scales rewards by the running deviation of discounted returns, so that values are of the order of 1.

    The return of a step sums the rewards of its episode up to it, as `VecNormalize` of Stable-Baselines3 does. Rewards
    are not shifted, because that changes what is best.
    """

    def __init__(self) -> None:
        super().__init__()
        self.moments = RunningMoments()

    def forward(self, reward: Tensor) -> Tensor:
        """Scale rewards [T, B] float32."""
        return (reward / self.moments.scale()[1]).clamp(-LIMIT, LIMIT)

    @torch.no_grad()
    def update(self, reward: Tensor, discount: Tensor, is_step: Tensor, carried: Tensor | None = None) -> None:
        """Count the discounted returns of steps in.

        Args:
            reward: [T, B] float32.
            discount: [T, B] float32, 0 in rows without a step: a return does not continue in the next episode.
            is_step: [T, B] bool.
            carried: [T, B] float32, the contribution of the rewards before a step to its return, as agents record it.
                None: returns start again with each trajectory, so that short trajectories scale too little.
        """
        if carried is not None:
            self.moments.update((carried + reward)[is_step])
            return
        total, carried, returns = torch.zeros_like(reward[0]), torch.zeros_like(reward[0]), []
        for t in range(len(reward)):
            total = carried * total + reward[t]
            carried = discount[t]
            returns.append(total)
        self.moments.update(torch.stack(returns)[is_step])


def _merged(first: Moments, second: Moments) -> Moments:
    """Chan, Golub and LeVeque 1979, eq. 2.1: merging two sets is exact, in whatever portions they come."""
    second = Moments(*(each.to(first.mean) for each in second))
    total, shift = first.total + second.total, second.mean - first.mean
    share = second.total / total
    squares = first.squares + second.squares + shift.square() * first.total * share
    return Moments(total, first.mean + shift * share, squares)


def _normalise(values: Tensor, moments: nn.Module) -> Tensor:
    mean, deviation = cast(RunningMoments, moments).scale()
    return ((values.to(torch.float32) - mean) / deviation).clamp(-LIMIT, LIMIT)


#: As they travel: the group of gradients that are none.
COUNTS = "counts"


class FilterCounts:
    """The running moments of a model that has its layers, at either end."""

    def __init__(self, model: nn.Module) -> None:
        modules = model.named_modules()
        self._moments = {name: module for name, module in modules if isinstance(module, RunningMoments)}

    def groups(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Tensors to send, by group and name; a filter that the model lacks has no group."""
        found = {name: moments.fresh() for name, moments in self._moments.items()}
        return {COUNTS: _named(found)} if found else {}

    def track(self) -> None:
        """From now on, also keep new counts separately."""
        for moments in self._moments.values():
            moments.track()

    def pending(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Counts since `track` or the last `forget`, as a group to send; no group if there are none."""
        found = {name: fresh for name, moments in self._moments.items() if (fresh := moments.fresh()).total > 0}
        return {COUNTS: _named(found)} if found else {}

    def forget(self) -> None:
        self.track()

    def add(self, tensors: Mapping[str, Tensor]) -> None:
        """Add the `pending` counts of another process; under the model's lock."""
        for name, moments in self._moments.items():
            # What comes from elsewhere may be anything that is finite; less than one vector would spoil the rest.
            if f"{name}.total" in tensors and tensors[f"{name}.total"] >= 1.0:
                moments.merge(Moments(*(tensors[f"{name}.{part}"] for part in Moments._fields)))


def _named(found: Mapping[str, Moments]) -> dict[str, Tensor]:
    return {
        f"{name}.{part}": tensor
        for name, moments in found.items()
        for part, tensor in zip(Moments._fields, moments, strict=True)
    }
