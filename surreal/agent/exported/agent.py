"""`ExportedAgent`: acts by an exported policy as other agents do by a model; made by `surreal.run`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from surreal.agent.base import ActContext, Agent
from surreal.agent.exported.file import MASK, NEXT_STATE, STATE, ExportedFile
from surreal.agent.slots import SlotMemory
from surreal.base import tree
from surreal.base.errors import CheckpointError
from surreal.base.pytorch import Module
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs


class ExportedAgent(Agent):
    """An agent that never explores, over a file that holds filters, network, choice and action mapping.

    Args:
        file: the policy.
        obs_spec: kind of one observation; None, if observations are raw, is refused.

    Raises:
        CheckpointError: the file is for other observations.
    """

    def __init__(self, file: ExportedFile, *, obs_spec: ObsSpec | None) -> None:
        super().__init__(Module(), obs_spec=obs_spec)
        self._file = file
        described = [each for each in file.inputs if each["name"] not in (MASK, STATE)]
        self._names = [each["name"] for each in described]
        wanted = [(each["shape"], each["dtype"]) for each in described]
        given = [] if obs_spec is None else [(list(leaf.shape), leaf.dtype.name) for leaf in obs_spec.leaves]
        if wanted != given:
            raise CheckpointError(f"{file.path} is for observations {wanted}, but here they are {given or 'raw'}")
        self._takes_mask = any(each["name"] == MASK for each in file.inputs)
        self._actions = [each for each in file.outputs if each["name"] != NEXT_STATE]
        state = next((each for each in file.inputs if each["name"] == STATE), None)
        self._states = None if state is None else SlotMemory(tuple(state["shape"]), torch.device("cpu"))

    def _act(self, obs: Obs, explore: NDArray[np.bool_], context: ActContext) -> NDArray[Any]:
        leaves = [leaf.numpy() for leaf in tree.leaves(obs)]
        inputs = dict(zip(self._names, leaves, strict=True))
        if self._takes_mask and context.action_mask is not None:
            inputs[MASK] = context.action_mask
        if self._states is not None:
            inputs[STATE] = self._states.take(context.slots, context.is_first).numpy()
        outputs = self._file.run(inputs)
        if self._states is not None:
            self._states.put(context.slots, torch.from_numpy(outputs[NEXT_STATE]))
        return self._flat([outputs[each["name"]] for each in self._actions])

    def _flat(self, actions: list[NDArray[Any]]) -> NDArray[Any]:
        """Turn the environment's actions back into an agent's: counted from 0, and in one array."""
        found = [
            action - np.asarray(each["start"]) if "start" in each else action
            for each, action in zip(self._actions, actions, strict=True)
        ]
        if len(found) == 1:
            return found[0]
        return np.concatenate([action.reshape(len(action), -1) for action in found], axis=1)
