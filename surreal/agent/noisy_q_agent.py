"""`NoisyQAgent`: takes the action with the largest Q value of a noisy network, which explores by its noise."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from surreal.agent.base import ActContext, Acted
from surreal.agent.exploring.epsilon_greedy import Exploration
from surreal.agent.q_agent import QAgent
from surreal.base import tree
from surreal.base.pytorch import Module
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.model import NoisyQFunction


class NoisyQAgent(QAgent):
    """An agent over a `NoisyQFunction` (Fortunato et al. 2018, arXiv:1706.10295).

    Rows that explore share the noise of a turn, which is drawn again in each; all others are computed without any.

    Args:
        q_model: a `NoisyQFunction`.
        exploration: probability of a random action in addition to the noise, as in `QAgent`; None: none, as in the
            paper.
        rng: draws all of it; None seeds one from the operating system.
        obs_spec: see `Agent`.
    """

    def __init__(
        self,
        q_model: Module,
        exploration: float | Exploration | None = None,
        *,
        rng: np.random.Generator | None = None,
        obs_spec: ObsSpec | None = None,
    ) -> None:
        if not isinstance(q_model, NoisyQFunction):
            raise ValueError(f"the model is a {type(q_model).__name__}; it must be a NoisyQFunction")
        super().__init__(q_model, exploration, rng=rng, obs_spec=obs_spec)
        self._noisy = q_model
        self._seed = int(self.rng.integers(2**63))
        self._generator: torch.Generator | None = None

    def _act(self, obs: Obs, explore: NDArray[np.bool_], context: ActContext) -> Acted:
        if explore.all() or not explore.any():
            return self._act_alike(obs, explore, context)
        order = np.concatenate((np.flatnonzero(explore), np.flatnonzero(~explore)))
        count = int(np.count_nonzero(explore))
        halves = [self._act_some(obs, explore, context, rows) for rows in (order[:count], order[count:])]
        back = np.argsort(order)
        actions = np.concatenate([half.actions for half in halves])[back]
        names = halves[0].extras
        extras = {name: torch.cat([half.extras[name] for half in halves])[torch.from_numpy(back)] for name in names}
        return Acted(actions, extras)

    def _act_some(self, obs: Obs, explore: NDArray[np.bool_], context: ActContext, rows: NDArray[np.int64]) -> Acted:
        slots, is_first, mask = context
        some = ActContext(slots[rows], is_first[rows], None if mask is None else mask[rows])
        return self._act_alike(tree.take(obs, torch.from_numpy(rows)), explore[rows], some)

    def _act_alike(self, obs: Obs, explore: NDArray[np.bool_], context: ActContext) -> Acted:
        """Choose for rows all of which explore, or none."""
        if not explore.any():
            self._noisy.clear_noise()
        else:
            if self._generator is None:
                self._generator = torch.Generator(self._noisy.device).manual_seed(self._seed)
            self._noisy.draw_noise(self._generator)
        return super()._act(obs, explore, context)
