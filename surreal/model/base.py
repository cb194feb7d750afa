"""`Model`: the base of the networks that agents act with and learners train."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surreal.base import tree
from surreal.base.errors import ContractError
from surreal.base.pytorch import Module
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.model.filters import ObsFilter, ReturnFilter


class Model(Module, ABC):
    """A network over observations. Subclasses implement `forward`; all other methods have defaults.

    A subclass that knows its shapes creates its layers in the constructor, and that is all:

        class Net(Model):
            def __init__(self, action_space):
                super().__init__()
                self.q = nn.Linear(4, action_space)

            def forward(self, obs):
                return self.q(obs)

    Agents call it with observations [B, ...], learners of trajectories with [T + 1, B, ...]: layers accept any leading
    axes, or flatten them.

    One that waits for the first observation extends `LazyModel`. One with a memory sets `state_shape`; it alone is
    called with `state` and `is_first`, and returns its new state along with its output.

    Attributes:
        obs_filter: normalizes observations; learners of trajectories count their batches in it.
        return_filter: scales rewards for these learners, and counts their returns.
        value_hiddens: units of the dense layers of `value_network`, which gives the value of the state; None if the
            value shares the policy's network.
    """

    value_hiddens: Sequence[int] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.obs_filter: ObsFilter | None = None
        self.return_filter: ReturnFilter | None = None

    @abstractmethod
    def forward(self, obs: Obs, state: Tensor | None = None, is_first: Tensor | None = None) -> Any:
        """Compute the outputs for a batch [B], or for sequences [T, B].

        In an agent this runs on the acting thread, under `lock` and in inference mode; in a learner on the learner's
        thread, with gradients.

        Args:
            obs: [B, *obs_shape] or [T, B, *obs_shape] tensor, or nested dicts and tuples of them, in the dtype of the
                environment.
            state: [B, *state_shape] recurrent state before (the first of) these observations.
            is_first: [B] or [T, B] bool: an episode begins here, so the state is cleared before.

        Returns:
            The output; of a recurrent model the output and the state afterwards, [B, *state_shape].
        """


class LazyModel(Model):
    """A model whose layers are created when the kind of its observations is known.

    It learns that from `materialize(obs_spec)`, from the header of parameters that it is given, or from its first
    batch, which is then [B, ...]. A subclass creates its layers in `_build`, and calls `_ensure_built` in `forward`.

    Attributes:
        obs_spec: kind of one observation, None while there are no layers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.obs_spec: ObsSpec | None = None

    @property
    def is_materialized(self) -> bool:
        """Whether the layers exist."""
        return self.obs_spec is not None

    def materialize(self, obs_spec: ObsSpec) -> None:
        """Create the layers for observations of this kind."""
        if self.obs_spec is not None:
            return
        with self.lock:
            if self.obs_spec is None:
                # The first batch often comes in inference mode, where parameters could never be trained.
                with torch.inference_mode(False), torch.enable_grad():
                    self._build(obs_spec)
                    self.to(self.device)
                self.obs_spec = obs_spec

    def materialize_from(self, header: Mapping[str, Any]) -> None:
        """Create the layers for the observations that the header of parameters describes.

        Raises:
            ContractError: it describes none, or such that this model cannot read.
        """
        try:
            self.materialize(ObsSpec.from_json(header["obs"]))
        except (KeyError, TypeError, ValueError) as error:
            problem = "say nothing of observations" if "obs" not in header else f"are for other observations: {error}"
            raise ContractError(f"the parameters do not fit this model: they {problem}") from error

    def header(self) -> dict[str, Any]:
        return {} if self.obs_spec is None else {"obs": self.obs_spec.to_json()}

    @abstractmethod
    def _build(self, obs_spec: ObsSpec) -> None:
        """Create the layers, on the CPU; called once, under `lock`."""

    def _ensure_built(self, obs: Obs) -> None:
        if self.obs_spec is None:
            self.materialize(ObsSpec.from_obs(tree.map_leaves(lambda leaf: leaf[0].cpu(), obs)))


def make_generator(seed: int | None) -> torch.Generator | None:
    """Return a generator for the initial parameters; None means torch's global one."""
    if seed is None:
        return None
    # Neighboring seeds of torch's generator give related streams; SeedSequence spreads them.
    state = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))
