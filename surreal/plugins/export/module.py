"""`PolicyModule`: a whole policy as one torch module, from what an environment shows to what it takes."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from surreal.agent import Agent
from surreal.agent.exported import MASK, NEXT_STATE, STATE
from surreal.base.errors import ExportError
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.envs.actions import ActionAdapter, mask_width
from surreal.plugins.export.actions import ActionMapping
from surreal.plugins.export.greedy import greedy_choice


class PolicyModule(nn.Module):
    """Filters, network, greedy choice, and the way to the environment's own actions.

    Args:
        agent: which acts; its model has its parameters.
        obs_spec: kind of one observation.
        action_space: of the environment.

    Attributes:
        obs_names: the inputs that make an observation: `obs`, or `obs.KEY` of a nested one.
        mask_width: of the input `action_mask`; 0: there is none.
        state_shape: of a recurrent policy's input `state` and output `next_state`; None: there are none.
        actions: the outputs that make an action: `action`, or `action.KEY` of a nested one.

    Raises:
        ExportError: the agent acts by code of its own.
    """

    def __init__(self, agent: Agent, obs_spec: ObsSpec, action_space: gymnasium.Space[Any]) -> None:
        super().__init__()
        self.model = copy.deepcopy(agent.model)  # exporters leave their traces in what they see
        self.actions = ActionMapping(action_space)
        self.obs_spec = obs_spec
        self.obs_names = [f"obs.{leaf.name}" if leaf.name else "obs" for leaf in obs_spec.leaves]
        self.mask_width = mask_width(ActionAdapter(action_space).space)
        self.state_shape = agent.model.state_shape
        self._choice = greedy_choice(agent)

    @property
    def input_names(self) -> list[str]:
        """All inputs, in their order."""
        return [*self.obs_names, *([MASK] if self.mask_width else []), *([STATE] if self.state_shape else [])]

    @property
    def output_names(self) -> list[str]:
        """All outputs, in their order."""
        return [*self.actions.leaves, *([NEXT_STATE] if self.state_shape else [])]

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Compute the best actions known, and a recurrent policy's next state, for N rows."""
        obs = self.obs_spec.unflatten([inputs[name] for name in self.obs_names])
        if self.state_shape is None:
            output, after = self.model(obs), {}
        else:
            output, state = self.model(obs, inputs[STATE])
            after = {NEXT_STATE: state}
        return {**self.actions(self._choice(output, inputs.get(MASK))), **after}

    def feed(
        self, obs: Obs, mask: NDArray[np.bool_] | None = None, state: NDArray[np.float32] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Give the inputs for a batch; where nothing is said, all actions are legal, and episodes begin.

        Args:
            obs: [N, *obs_shape] arrays, nested as the space has them.
            mask: [N, n], which discrete actions are legal.
            state: [N, *state_shape] of a recurrent policy.
        """
        inputs = dict(zip(self.obs_names, self.obs_spec.flatten(obs), strict=True))
        count = len(inputs[self.obs_names[0]])
        if self.mask_width:
            inputs[MASK] = np.ones((count, self.mask_width), np.bool_) if mask is None else mask
        if self.state_shape is not None:
            inputs[STATE] = np.zeros((count, *self.state_shape), np.float32) if state is None else state
        return inputs

    def example(self, count: int = 2) -> dict[str, Tensor]:
        """Give inputs of zeros for some rows: a network is traced with them."""
        leaves = [np.zeros((count, *leaf.shape), leaf.dtype) for leaf in self.obs_spec.leaves]
        return {name: torch.from_numpy(each) for name, each in self.feed(self.obs_spec.unflatten(leaves)).items()}


def policy_module(agent: Agent, obs_spec: ObsSpec | None, action_space: gymnasium.Space[Any]) -> PolicyModule:
    """Make the module of a policy, ready to be traced: on the CPU, without gradients.

    Raises:
        ExportError: the policy cannot be exported.
    """
    if obs_spec is None:
        raise ExportError("observations are raw, of any form, and a file needs to know theirs")
    return PolicyModule(agent, obs_spec, action_space).cpu().eval().requires_grad_(False)
