"""Agents that sample from a model's distribution over actions: `PolicyAgent` records columns for on-policy learners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.agent.base import ActContext, Acted, Agent
from surreal.agent.forward import check_policy, reads_arrays
from surreal.agent.q_agent import EpsilonGreedy
from surreal.agent.sampler import Sampler
from surreal.base.pytorch import Module, to_array
from surreal.base.ranges import NonNegativeInt, PositiveInt, ShareBelowOne, checked
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.model import Categorical, Distribution, PolicyValue
from surreal.model.in_numpy import NumpyCategorical, NumpyPolicy


class PolicyAgent(Agent):
    """An agent over a model that gives a `PolicyValue`, such as `surreal.model.ActorCritic`.

    Rows that explore take a sample, all others the most probable action. Recorded with the action: `log_probability`
    [N] float32 of the action under the policy that acted, and `value` [N] float32 of the state.

    Args:
        model: gives the policy and the value.
        noise_correlation: see `Sampler`; raising it explores what needs several steps in one direction.
        rng: seeds the samples; None seeds them from the operating system.
    """

    @checked
    def __init__(
        self,
        model: Module,
        *,
        noise_correlation: ShareBelowOne = 0.0,
        rng: np.random.Generator | None = None,
        obs_spec: ObsSpec | None = None,
    ) -> None:
        super().__init__(model, obs_spec=obs_spec)
        rng = np.random.default_rng() if rng is None else rng
        self.sampler: Sampler = Sampler(rng, noise_correlation=noise_correlation)

    @reads_arrays
    def _act(self, obs: Obs, explore: NDArray[np.bool_], context: ActContext) -> Acted:
        output, extras = self.compute(obs, context)
        policy, value = PolicyValue(*output)
        device = self.model.device
        if self._turns_to_check and self._expected is not None:
            check_policy(self.model.forward, self._expected, policy)
        if context.action_mask is not None:
            policy = policy.masked(torch.from_numpy(context.action_mask).to(device))
        action = self.sampler.choose(policy, explore, device, context.slots, context.is_first)
        extras |= {"log_probability": policy.log_probability(action), "value": value}
        return Acted(action, extras, _outputs(policy, self.shows))


@checked
@dataclass(eq=False, repr=False)
class RandomStart:
    """Replaces actions while the run is young."""

    action_space: gymnasium.Space[Any]  #: Discrete from 0, or a Box with finite bounds
    #: env steps of the run during which actions are random; raising it explores longer before the policy acts
    steps: NonNegativeInt
    rng: np.random.Generator

    def __post_init__(self) -> None:
        action_space = self.action_space
        self._chooser: EpsilonGreedy | None = None
        if isinstance(action_space, spaces.Discrete):
            self._chooser = EpsilonGreedy(int(action_space.n), self.rng)
        elif isinstance(action_space, spaces.Box) and action_space.is_bounded():
            self._low, self._high = action_space.low, action_space.high
        else:
            raise ValueError(f"actions are {action_space}; use Discrete, or a Box with finite bounds")

    def replace(
        self, actions: NDArray[Any], explore: NDArray[np.bool_], step: int, action_mask: NDArray[np.bool_] | None = None
    ) -> NDArray[Any]:
        """Return the actions [N, *action_shape] to take, written into those of the policy in rows of `explore`."""
        if step >= self.steps or not explore.any():
            return actions
        if self._chooser is not None:
            return self._chooser.choose(actions, 1.0, explore, action_mask)
        random = self.rng.uniform(self._low, self._high, actions.shape)
        np.copyto(actions, random, where=explore[:, None], casting="same_kind")
        return actions


class SamplingAgent(Agent):
    """An agent over a model that gives a `Distribution`, such as `surreal.model.SoftActorCritic`.

    Rows that explore take a sample, all others the distribution's mode.

    Args:
        model: gives the distribution.
        action_space: Discrete from 0, or a Box with finite bounds.
        random_steps: env steps of the run in which rows that explore take uniformly random actions.
        noise_hold_steps: see `Sampler`; raising it explores what needs several steps in one direction.
        noise_matrix_steps: see `Sampler`; for a policy with `state_dependent_sigma`.
        rng: draws the actions; None seeds one from the operating system.
    """

    @checked
    def __init__(
        self,
        model: Module,
        *,
        action_space: gymnasium.Space[Any],
        random_steps: NonNegativeInt = 0,
        noise_hold_steps: PositiveInt = 1,
        noise_matrix_steps: PositiveInt | None = None,
        rng: np.random.Generator | None = None,
        obs_spec: ObsSpec | None = None,
    ) -> None:
        super().__init__(model, obs_spec=obs_spec)
        rng = np.random.default_rng() if rng is None else rng
        self.sampler: Sampler = Sampler(rng, noise_hold_steps=noise_hold_steps, noise_matrix_steps=noise_matrix_steps)
        self._start = RandomStart(action_space, random_steps, rng)

    @reads_arrays
    def _act(self, obs: Obs, explore: NDArray[np.bool_], context: ActContext) -> Acted:
        policy, extras = self.compute(obs, context)
        device = self.model.device
        if context.action_mask is not None:
            policy = policy.masked(torch.from_numpy(context.action_mask).to(device))
        action = to_array(self.sampler.choose(policy, explore, device, context.slots, context.is_first))
        if self.mode == "training":
            action = self._start.replace(action, explore, self.env_step, context.action_mask)
        return Acted(action, extras, _outputs(policy, self.shows))


def _outputs(policy: Distribution | NumpyPolicy, shows: frozenset[str]) -> dict[str, torch.Tensor]:
    """Return the probabilities [N, n] of n discrete actions, if they are asked for."""
    if "probabilities" not in shows or not isinstance(policy, Categorical | NumpyCategorical):
        return {}
    return {"probabilities": torch.as_tensor(policy.logits).softmax(-1)}
