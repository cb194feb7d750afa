"""`DeterministicAgent`: takes the action that a model's actor gives, and explores by noise on it."""

from __future__ import annotations

from typing import Any, Literal, cast

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.agent.base import ActContext, Acted, Agent
from surreal.agent.forward import reads_arrays
from surreal.agent.noise import ActionNoise, GaussianNoise, OrnsteinUhlenbeckNoise, ParameterNoise
from surreal.agent.policy_agent import RandomStart
from surreal.agent.q_agent import Exploration
from surreal.base.pytorch import Module, to_array, to_tensors
from surreal.base.ranges import NonNegativeInt, PositiveShare, checked
from surreal.base.schedules import ConstantSchedule
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.model import DeterministicActorCritic


class DeterministicAgent(Agent):
    """An agent over a model that gives actions [N, n], such as `surreal.model.DeterministicActorCritic`.

    Actions with noise are cut at the bounds, and recorded as they were taken.

    Args:
        model: gives actions in the units of the environment.
        exploration: standard deviation of the noise, for actions scaled to [-1, 1]: a number, a schedule, or any
            function of the step that gives a number or one for each environment; more explores more. None never
            explores.
        action_space: Box of one axis with finite bounds.
        noise: gaussian; ornstein_uhlenbeck, which stays on one side for some steps; or parameter, which adds noise to
            the actor's parameters until actions differ by `exploration`. See `surreal.agent.noise`.
        noise_theta: pull of Ornstein-Uhlenbeck noise toward 0 in each step.
        random_steps: env steps of the run in which rows that explore take uniformly random actions.
        rng: draws all of it; None seeds one from the operating system.
    """

    @checked
    def __init__(
        self,
        model: Module,
        exploration: float | Exploration | None = 0.1,
        *,
        action_space: gymnasium.Space[Any],
        noise: Literal["gaussian", "ornstein_uhlenbeck", "parameter"] = "gaussian",
        noise_theta: PositiveShare = 0.15,
        random_steps: NonNegativeInt = 0,
        rng: np.random.Generator | None = None,
        obs_spec: ObsSpec | None = None,
    ) -> None:
        super().__init__(model, obs_spec=obs_spec)
        if not isinstance(action_space, spaces.Box):
            raise ValueError(f"actions are {action_space}; use a Box with finite bounds")
        if exploration is not None and not callable(exploration):
            exploration = ConstantSchedule(exploration)
        self.exploration: Exploration | None = exploration
        self._low, self._high = action_space.low, action_space.high
        self._half_range = (self._high.astype(np.float64) - self._low) / 2.0
        self._rng = rng = np.random.default_rng() if rng is None else rng
        #: None: of parameters, which there may be none of yet.
        self._noise: ActionNoise | ParameterNoise | None = None
        if noise == "gaussian":
            self._noise = GaussianNoise(len(self._low), rng)
        elif noise == "ornstein_uhlenbeck":
            self._noise = OrnsteinUhlenbeckNoise(len(self._low), rng, noise_theta)
        elif not isinstance(model, DeterministicActorCritic):
            raise ValueError(
                f"noise is parameter, which needs a DeterministicActorCritic, not a {type(model).__name__}"
            )
        self._start = RandomStart(action_space, random_steps, rng)

    @reads_arrays
    def _act(self, obs: Obs, explore: NDArray[np.bool_], context: ActContext) -> Acted:
        output, extras = self.compute(obs, context)
        actions: NDArray[np.float32] = to_array(output).copy()
        if self.exploration is not None and explore.any():
            noisy = self._explored(obs, actions, context, self.exploration(self.env_step))
            np.copyto(actions, noisy, where=explore[:, None], casting="same_kind")
            actions = self._start.replace(actions, explore, self.env_step)
        return Acted(np.clip(actions, self._low, self._high, out=actions), extras)

    def _explored(
        self, obs: Obs, actions: NDArray[np.float32], context: ActContext, sigma: float | NDArray[np.float64]
    ) -> NDArray[Any]:
        """Return actions [N, n] with noise of one standard deviation, or one per slot; they may be out of bounds."""
        if self._noise is None:
            self._noise = ParameterNoise(cast(DeterministicActorCritic, self.model), self._rng)
        if isinstance(self._noise, ParameterNoise):
            own = torch.from_numpy(actions).to(self.model.device)
            is_new, distance = bool(context.is_first.any()), float(np.mean(sigma))
            return to_array(self._noise.perturb(to_tensors(obs), own, distance, is_new=is_new))
        if isinstance(sigma, np.ndarray):
            # Slots beyond the last number (a pool that grows) share those of the first.
            sigma = sigma.take(context.slots, mode="wrap")[:, None]
        noise = self._half_range * self._noise.draw(sigma, context.slots, context.is_first)
        return np.asarray(actions + noise)

    def metrics(self) -> dict[str, float]:
        """Return the mean over the environments of the noise's standard deviation."""
        if self.exploration is None or self.mode == "eval":
            return {"agent/noise_sigma": 0.0}
        return {"agent/noise_sigma": float(np.mean(self.exploration(self.env_step)))}
