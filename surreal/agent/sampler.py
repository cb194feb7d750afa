"""`Sampler`: explores by the policy itself: rows that explore take a sample of it, all others its mode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray

from surreal.agent.slots import SlotMemory
from surreal.base.ranges import PositiveInt, ShareBelowOne, checked
from surreal.model import Distribution, SquashedNormal
from surreal.model.distributions import Normal
from surreal.model.in_numpy import NumpyNormal, NumpyPolicy, NumpySquashedNormal
from surreal.model.off_policy.action_range import StateDependentNormal

_Policy: TypeAlias = Distribution | NumpyPolicy


@checked
@dataclass(eq=False, repr=False)
class Sampler:
    """Chooses actions by distributions over them; raises `ValueError` if noise is both correlated and held."""

    rng: np.random.Generator  #: seeds the samples
    _: KW_ONLY
    #: correlation of the samples of a normal policy from one step of an episode to the next. Each sample alone has the
    #: policy's distribution, but successive ones stay on the same side of the mean for longer (Hollenstein et al. 2024,
    #: arXiv:2312.11091). 0: independent samples
    noise_correlation: ShareBelowOne = 0.0
    #: largest number of steps of an episode for which the noise of a normal policy, squashed or not, stays the same.
    #: Each number k up to it is drawn with a probability in proportion to 1 / k^2 (FlashSAC, arXiv:2604.04539). 1: each
    #: step has its own
    noise_hold_steps: PositiveInt = 1
    #: steps of an episode after which a policy with noise that depends on the state (gSDE, arXiv:2005.05719) gets
    #: another matrix; raising it explores more smoothly. None: a whole episode
    noise_matrix_steps: PositiveInt | None = None

    def __post_init__(self) -> None:
        self._seed = int(self.rng.integers(2**63))
        self._generator: torch.Generator | None = None
        if self.noise_correlation and self.noise_hold_steps > 1:
            problem = f"noise_hold_steps is {self.noise_hold_steps}, but noise_correlation is set"
            raise ValueError(f"{problem}; use one of them")
        self._steps_left: SlotMemory | None = None
        self._noise: SlotMemory | None = None

    def seed(self, seed: int) -> None:
        """Begin another sequence of samples."""
        self._seed = seed
        self._generator = None

    def choose(
        self,
        policy: _Policy,
        explore: NDArray[np.bool_],
        device: torch.device,
        slots: NDArray[np.int64],
        is_first: NDArray[np.bool_],
    ) -> Any:
        """Choose one action for each row.

        Args:
            policy: over the actions of N rows.
            explore: [N] rows that may explore.
            device: device of the policy's tensors, which never changes.
            slots: [N] slot of each row, >= 0.
            is_first: [N] rows that begin an episode.

        Returns:
            [N, *action_shape] tensor, or array of a `NumpyPolicy`.

        Raises:
            ValueError: noise should be correlated or held, but actions are not those of a normal policy.
        """
        count = np.count_nonzero(explore)  # a fifth of the time that `any` and `all` take each
        if not count:
            return policy.mode()
        if self._generator is None:
            self._generator = torch.Generator(device).manual_seed(self._seed)
        action: Any
        if self.noise_correlation:
            action = self._correlated(policy, slots, is_first)
        elif self.noise_hold_steps > 1:
            action = self._held(policy, slots, is_first)
        elif isinstance(policy, StateDependentNormal):
            action = policy.at(policy.noise(self._matrices(policy, slots, is_first)))
        elif self.noise_matrix_steps is not None:
            problem = f"noise_matrix_steps is {self.noise_matrix_steps}, but the policy is a {type(policy).__name__}"
            raise ValueError(f"{problem}, whose noise has no matrix; set state_dependent_sigma of a SoftActorCritic")
        else:
            action = policy.sample(self._generator)
        if count < len(explore):
            action[~explore] = policy.mode()[~explore]
        return action

    def _normal(self, shape: Sequence[int]) -> torch.Tensor:
        generator = cast(torch.Generator, self._generator)
        return torch.empty(shape, device=generator.device).normal_(generator=generator)

    def _correlated(self, policy: _Policy, slots: NDArray[np.int64], is_first: NDArray[np.bool_]) -> Any:
        if not isinstance(policy, Normal | NumpyNormal):
            raise ValueError(f"noise_correlation is set, but the policy is a {type(policy).__name__} and not normal")
        fresh = self._normal(policy.mean.shape)
        if self._noise is None:
            self._noise = SlotMemory(tuple(fresh.shape[1:]), fresh.device)
        before = self._noise.take(slots, is_first)
        noise = self.noise_correlation * before + math.sqrt(1.0 - self.noise_correlation**2) * fresh
        if is_first.any():
            begins = torch.from_numpy(is_first)
            noise[begins] = fresh[begins]
        self._noise.put(slots, noise)
        return policy.at(noise)

    def _held(self, policy: _Policy, slots: NDArray[np.int64], is_first: NDArray[np.bool_]) -> Any:
        if not isinstance(policy, Normal | NumpyNormal | SquashedNormal | NumpySquashedNormal):
            raise ValueError(f"noise_hold_steps is set, but the policy is a {type(policy).__name__} and not normal")
        normal = policy.normal if isinstance(policy, SquashedNormal | NumpySquashedNormal) else policy
        fresh = self._normal(normal.mean.shape)
        weights = torch.arange(1, self.noise_hold_steps + 1, device=fresh.device, dtype=torch.float32) ** -2.0
        drawn = 1.0 + torch.multinomial(weights, len(fresh), replacement=True, generator=self._generator)
        return policy.at(self._kept(fresh, drawn, slots, is_first))

    def _matrices(
        self, policy: StateDependentNormal, slots: NDArray[np.int64], is_first: NDArray[np.bool_]
    ) -> torch.Tensor:
        fresh = self._normal((len(slots), *policy.log_sigma.shape))
        steps = fresh.new_full((len(slots),), math.inf if self.noise_matrix_steps is None else self.noise_matrix_steps)
        return self._kept(fresh, steps, slots, is_first)

    def _kept(
        self, fresh: torch.Tensor, steps: torch.Tensor, slots: NDArray[np.int64], is_first: NDArray[np.bool_]
    ) -> torch.Tensor:
        """Return the noise that slots keep, [N, ...]; where its steps [N] are over, it is `fresh` for `steps` steps."""
        if self._noise is None or self._steps_left is None:
            self._noise = SlotMemory(tuple(fresh.shape[1:]), fresh.device)
            self._steps_left = SlotMemory((), fresh.device)
        left = self._steps_left.take(slots, is_first)
        is_new = left == 0.0
        noise = torch.where(is_new.view(-1, *[1] * (fresh.dim() - 1)), fresh, self._noise.take(slots, is_first))
        self._noise.put(slots, noise)
        self._steps_left.put(slots, torch.where(is_new, steps, left) - 1.0)
        return noise
