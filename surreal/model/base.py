"""`Model`: the base of the networks that agents act with and learners train."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from surreal.errors import ContractError
from surreal.model.inputs import count_features
from surreal.specs import ObsSpec
from surreal.types import Obs
from surreal.utils.pytorch import Module


class Model(Module, ABC):
    """A network over observations. Subclasses give `forward`; all other methods have defaults.

    A subclass that knows its shapes creates its layers in the constructor, and that is all:

        class Net(Model):
            def __init__(self, action_space):
                super().__init__()
                self.q = nn.Linear(4, action_space)

            def forward(self, obs):
                return self.q(obs)

    One that waits for the first observation extends `LazyModel`.
    """

    @abstractmethod
    def forward(self, obs: Obs) -> Any:
        """Compute the outputs for a batch.

        In an agent this runs on the acting thread, under `lock` and in inference mode; in a learner on the learner's
        thread, with gradients.

        Args:
            obs: [B, *obs_shape] tensor, or nested dicts and tuples of them, in the dtype of the environment.
        """


class LazyModel(Model):
    """A model whose input is the flattened observation, created when the number of features is known.

    It learns the number from `materialize(obs_spec)`, from the parameters that it is given, or from its first batch.
    A subclass creates its layers in `_build`, and calls `_ensure_built` in `forward` with the flattened batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self._num_features: int | None = None

    @property
    def is_materialized(self) -> bool:
        """Whether the layers exist."""
        return self._num_features is not None

    def materialize(self, obs_spec: ObsSpec) -> None:
        """Create the layers for observations of this kind."""
        self._ensure_built(count_features(obs_spec))

    def materialize_from(self, tensors: Mapping[str, Tensor]) -> None:
        """Create the layers that `tensors` would fill.

        Raises:
            ContractError: the first layer is not among them.
        """
        name = self._input_weight
        weight = tensors.get(name)
        if weight is None or weight.ndim == 0:
            diff = tuple(f"{key}: {list(tensor.shape)} -> missing" for key, tensor in tensors.items())
            raise ContractError(f"the parameters do not fit this model: they have no {name}", diff=diff)
        self._ensure_built(weight.shape[-1])

    @property
    @abstractmethod
    def _input_weight(self) -> str:
        """Name of the parameter whose last axis is the number of features."""

    @abstractmethod
    def _build(self, num_features: int) -> None:
        """Create the layers, on the CPU; called once, under `lock`."""

    def _ensure_built(self, num_features: int) -> None:
        if self._num_features is not None:
            return
        with self.lock:
            if self._num_features is None:
                # The first batch often comes in inference mode, where parameters could never be trained.
                with torch.inference_mode(False), torch.enable_grad():
                    self._build(num_features)
                    self.to(self.device)
                self._num_features = num_features


def make_generator(seed: int | None) -> torch.Generator | None:
    """Give a generator for the initial parameters; None means torch's global one."""
    if seed is None:
        return None
    # Neighbouring seeds of torch's generator give related streams; SeedSequence spreads them.
    state = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))
