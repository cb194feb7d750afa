"""`Agent`: chooses actions with a model, one observation or a batch at a time.

In a plain loop:

    obs, info = env.reset()
    while True:
        action = agent.act(obs)
        obs, reward, done, info = env.step(action)

In a run, `AgentLoop` calls `act_batch` with the acting rows of a pool. Both end in the one method that a subclass
gives, `_act`, which runs on the acting thread, in inference mode and under the model's lock: no listener thread can
replace parameters in the middle, and the version that is recorded is the version that acted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray

from surreal.specs import ObsSpec
from surreal.types import Action, Obs
from surreal.utils.pytorch import Module, to_tensors

Mode = Literal["training", "eval"]

_NO_EXTRAS: Mapping[str, NDArray[Any]] = MappingProxyType({})


class Agent(ABC):
    """Base of all agents. A subclass gives `_act`; `initialize`, `close` and `metrics` are optional.

        class GreedyAgent(Agent):
            def _act(self, obs, explore):
                return self.model(obs).argmax(dim=1)

    Args:
        model: computes what the actions are chosen by; its parameters may be replaced by another thread.
        obs_spec: kind of one observation. With None, the first observation given to `act` is taken to be a single one.

    Attributes:
        mode: "training" (explore where asked to) or "eval" (never explore).
        steps: actions chosen in training mode so far.
        global_step: env steps of the whole run as last heard, None outside of a run.
        env_ids: [N] slots of the rows `_act` was called with: where recurrent state and noise of a row are kept.
        first: [N] which of these rows begin an episode: their recurrent state must be cleared.
        action_mask: [N, n] which of the n discrete actions are legal in these rows; None if all are.
    """

    def __init__(self, model: Module, *, obs_spec: ObsSpec | None = None) -> None:
        self.model = model
        self.obs_spec = obs_spec
        self.mode: Mode = "training"
        self.steps = 0
        self.global_step: int | None = None
        self.env_ids: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        self.first: NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self.action_mask: NDArray[np.bool_] | None = None
        self._is_initialized = False
        if obs_spec is not None:
            model.materialize(obs_spec)

    @abstractmethod
    def _act(self, obs: Obs, explore: NDArray[np.bool_]) -> Any:
        """Choose one action for each row.

        Args:
            obs: [N, *obs_shape] tensor on the model's device, or nested dicts and tuples of them. It may share memory
                with the environment: not to be kept nor written to.
            explore: [N] rows that may explore; all others take the best action known, and update no filter.

        Returns:
            Actions [N, *action_shape], an array or tensor of its own memory; or a pair of them and of extras, columns
            [N, ...] to be recorded with the step (log-probability, value, recurrent state before the step).
        """

    def initialize(self) -> None:
        """Prepare what acting needs; called once on the acting thread, before the first action."""

    def close(self) -> None:
        """Release what `initialize` took; called by the agent's owner at the end."""

    def metrics(self) -> dict[str, float]:
        """Give numbers for the run's telemetry, named `agent/what_unit`; called from any thread."""
        return {}

    def set_mode(self, mode: str) -> None:
        """Switch between "training" and "eval"."""
        if mode not in ("training", "eval"):
            raise ValueError(f"mode is {mode!r}; it must be 'training' or 'eval'")
        self.mode = cast(Mode, mode)

    def act(self, obs: Obs) -> Any:
        """Choose the action for one observation, or for a batch of them; explores in training mode.

        Returns:
            For one observation its action, a Python number if the action is a scalar, else an array [*action_shape];
            for a batch an array [B, *action_shape].
        """
        leaf = _first_leaf(obs)
        if self.obs_spec is None:
            self.obs_spec = ObsSpec.from_obs(obs)
        single_ndim = len(self.obs_spec.leaves[0].shape)
        if leaf.ndim == single_ndim:
            action = self._act_rows(_add_batch_axis(obs), 1)[0]
            return action.item() if np.ndim(action) == 0 else action
        if leaf.ndim != single_ndim + 1:
            shape = self.obs_spec.leaves[0].shape
            raise ValueError(f"observation has shape {leaf.shape}; one has {shape}, a batch one axis more")
        return self._act_rows(obs, len(leaf))

    def act_batch(
        self,
        obs: Obs,
        explore: NDArray[np.bool_],
        env_ids: NDArray[np.int64],
        first: NDArray[np.bool_],
        action_mask: NDArray[np.bool_] | None = None,
    ) -> Action:
        """Choose the actions for N rows of a pool.

        Args:
            obs: [N, *obs_shape] array, or nested dicts and tuples of them.
            explore: [N] rows that may explore; nobody explores in eval mode.
            env_ids: [N] slot of each row.
            first: [N] rows that begin an episode.
            action_mask: [N, n] legal discrete actions, for agents that can choose among them.
        """
        if not self._is_initialized:
            self._is_initialized = True
            self.initialize()
        if self.mode == "eval":
            explore = np.zeros(len(explore), dtype=np.bool_)
        else:
            self.steps += len(explore)
        self.env_ids = env_ids
        self.first = first
        self.action_mask = action_mask
        model = self.model
        with model.lock, torch.inference_mode():
            chosen = self._act(to_tensors(obs, None if model.is_on_cpu else model.device), explore)
            version = model.version
        if isinstance(chosen, tuple):
            actions, extras = chosen
            extras = {name: _to_array(column) for name, column in extras.items()}
        else:
            actions, extras = chosen, _NO_EXTRAS
        actions = _to_array(actions)
        if len(actions) != len(explore):
            raise ValueError(f"{type(self).__name__}._act gave {len(actions)} actions for {len(explore)} rows")
        return Action(actions, extras, version)

    def _act_rows(self, obs: Obs, count: int) -> NDArray[Any]:
        explore = np.ones(count, dtype=np.bool_)
        return self.act_batch(obs, explore, np.arange(count), np.zeros(count, dtype=np.bool_)).actions


def _to_array(column: Any) -> NDArray[Any]:
    if isinstance(column, np.ndarray):
        return column
    if isinstance(column, torch.Tensor):
        return column.detach().cpu().numpy()
    return np.asarray(column)


def _first_leaf(obs: Obs) -> Any:
    """Give the leaf that stands first in an `ObsSpec`."""
    while isinstance(obs, Mapping | tuple):
        obs = obs[min(obs)] if isinstance(obs, Mapping) else obs[0]
    return obs if isinstance(obs, np.ndarray | torch.Tensor) else np.asarray(obs)


def _add_batch_axis(obs: Obs) -> Obs:
    if isinstance(obs, Mapping):
        return {key: _add_batch_axis(value) for key, value in obs.items()}
    if isinstance(obs, tuple):
        return tuple(_add_batch_axis(value) for value in obs)
    return obs[None] if isinstance(obs, np.ndarray | torch.Tensor) else np.asarray(obs)[None]
