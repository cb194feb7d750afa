"""Agents that take the action with the largest Q value.

`QAgent` is epsilon-greedy over a whole batch; `NoisyQAgent` explores by the noise of its network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from surreal.agent.base import ActContext, Acted, Agent
from surreal.agent.forward import check_values, reads_arrays
from surreal.base import tree
from surreal.base.pytorch import Module, to_array
from surreal.base.ranges import PositiveInt, checked
from surreal.base.schedules import ConstantSchedule, LinearSchedule
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.model import NoisyQFunction

#: From the step to the exploration rate in 0..1, or to one rate for each environment of the agent.
Exploration = Callable[[int], "float | NDArray[np.float64]"]
#: Without any exploration, an untrained network takes the same action again and again, and learns nothing.
DEFAULT_EXPLORATION = LinearSchedule(1.0, 0.05, 10_000)
_BLOCK = 4096


@checked
@dataclass(eq=False, repr=False)
class EpsilonGreedy:
    """Replaces each action, with probability epsilon, by one drawn uniformly from all actions.

    Random numbers are drawn in blocks, because a draw for every step costs more than the choice.
    """

    num_actions: PositiveInt  #: actions are 0 .. num_actions - 1
    rng: np.random.Generator  #: draws everything

    def __post_init__(self) -> None:
        self._place = 0
        self._draws: NDArray[np.float64] = np.empty(0)
        self._random: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def choose(
        self,
        greedy: NDArray[np.int64],
        epsilon: float | NDArray[np.float64],
        explore: NDArray[np.bool_],
        action_mask: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """Return the actions to take, written into `greedy`.

        Args:
            greedy: [N] the best action of each row.
            epsilon: probability of a random action in 0..1, for all rows or [N]; more explores more.
            explore: [N] rows that may explore; the others keep their greedy action.
            action_mask: [N, num_actions] legal actions; a random one is legal if any is.
        """
        start = self._place
        end = start + len(greedy)
        if end > len(self._draws):
            start, end = self._refill(len(greedy))
        self._place = end
        replaced = self._draws[start:end] < epsilon
        replaced &= explore
        random = self._random[start:end] if action_mask is None else self._legal(action_mask)
        np.copyto(greedy, random, where=replaced)
        return greedy

    def _refill(self, count: int) -> tuple[int, int]:
        size = max(_BLOCK, count)
        self._draws = self.rng.random(size)
        self._random = self.rng.integers(self.num_actions, size=size)
        return 0, count

    def _legal(self, action_mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        # The largest of independent uniform numbers is at each legal place equally often.
        ranks = self.rng.random(action_mask.shape)
        ranks[~action_mask] = -1.0
        random: NDArray[np.int64] = ranks.argmax(axis=1)
        return random


class QAgent(Agent):
    """An epsilon-greedy agent over a model that gives [N, num_actions] Q values.

    Args:
        q_model: gives the Q values, see `surreal.model.QFunction`.
        exploration: probability of a random action: a number, a schedule, or any function of the step that gives a
            number or one for each environment. The step is the run's global env step if it is known, else the
            agent's own. None never explores. Default: linear, from 1 to 0.05 over 10,000 steps.
        rng: draws the exploration; None seeds one from the operating system.
    """

    def __init__(
        self,
        q_model: Module,
        exploration: float | Exploration | None = DEFAULT_EXPLORATION,
        *,
        rng: np.random.Generator | None = None,
        obs_spec: ObsSpec | None = None,
    ) -> None:
        super().__init__(q_model, obs_spec=obs_spec)
        if exploration is not None and not callable(exploration):
            exploration = ConstantSchedule(exploration)
        self.exploration: Exploration | None = exploration
        self.rng = np.random.default_rng() if rng is None else rng
        self._chooser: EpsilonGreedy | None = None

    @reads_arrays
    def _act(self, obs: Obs, explore: NDArray[np.bool_], context: ActContext) -> Acted:
        q, extras = self.compute(obs, context)
        values: NDArray[np.float32] = to_array(q)
        if self._turns_to_check and self._expected is not None:
            check_values(self.model.forward, self._expected, values.shape)
        if context.action_mask is not None:
            values = np.where(context.action_mask, values, -np.inf)
        outputs = {"q_values": values} if "q_values" in self.shows else {}
        greedy: NDArray[np.int64] = values.argmax(1)
        if self.exploration is None or self.mode == "eval":
            return Acted(greedy, extras, outputs)
        if self._chooser is None:
            self._chooser = EpsilonGreedy(values.shape[1], self.rng)
        epsilon = self.exploration(self.env_step)
        if isinstance(epsilon, np.ndarray):
            # Slots beyond the last rate (a pool that grows) share the rates of the first.
            epsilon = epsilon.take(context.slots, mode="wrap")
        return Acted(self._chooser.choose(greedy, epsilon, explore, context.action_mask), extras, outputs)

    def metrics(self) -> dict[str, float]:
        """Return the exploration rate, the mean over the environments."""
        if self.exploration is None or self.mode == "eval":
            return {"agent/epsilon": 0.0}
        return {"agent/epsilon": float(np.mean(self.exploration(self.env_step)))}


class NoisyQAgent(QAgent):
    """An agent over a `NoisyQFunction` (Fortunato et al. 2018, arXiv:1706.10295).

    Rows that explore share the noise of a turn, which is drawn again in each; all others are computed without any.

    Args:
        q_model: a `NoisyQFunction`.
        exploration: probability of a random action in addition to the noise, as in `QAgent`; None: none, as in the
            paper.
        rng: draws all of it; None seeds one from the operating system.
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

    @reads_arrays
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
        shown = halves[0].outputs
        outputs = {name: np.concatenate([half.outputs[name] for half in halves])[back] for name in shown}
        return Acted(actions, extras, outputs)

    def _act_some(self, obs: Obs, explore: NDArray[np.bool_], context: ActContext, rows: NDArray[np.int64]) -> Acted:
        slots, is_first, mask = context
        some = ActContext(slots[rows], is_first[rows], None if mask is None else mask[rows])
        return self._act_alike(tree.take(obs, rows), explore[rows], some)

    def _act_alike(self, obs: Obs, explore: NDArray[np.bool_], context: ActContext) -> Acted:
        """Choose for rows all of which explore, or none."""
        if not explore.any():
            self._noisy.clear_noise()
        else:
            if self._generator is None:
                self._generator = torch.Generator(self._noisy.device).manual_seed(self._seed)
            self._noisy.draw_noise(self._generator)
        return super()._act(obs, explore, context)
