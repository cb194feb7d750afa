"""Conservative Q-learning: Kumar et al. 2020 (arXiv:2006.04779), as CQL(H) on SAC.

The critics' loss is `CQLLearner.critic_loss`; all the rest is `SACLearner`.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor

from surreal.base import tree
from surreal.base.contracts import ReplayView
from surreal.base.ranges import NonNegative, PositiveInt, checked
from surreal.base.types import Batch, Obs
from surreal.learner.losses import joint_loss
from surreal.learner.off_policy.sac import SACLearner
from surreal.model import SoftActorCritic
from surreal.model.off_policy.action_range import Drawn


class CQLLearner(SACLearner):
    """Learns a policy of high value and entropy, and critics that trust actions only as far as the experience has them.

    Args:
        model: a `SoftActorCritic`.
        replay: see `SACLearner`.
        conservative_weight: weight of the difference between the critics' soft maximum over all actions and their value
            of the action taken, which the critics make smaller (the paper's alpha); raising it stays closer to the
            experience. 0: SAC.
        conservative_actions: actions of each of three kinds (uniform, of the policy, of the policy in the next state)
            that the soft maximum is estimated from; more estimate it better, and take longer.
    """

    @checked
    def __init__(
        self,
        model: SoftActorCritic,
        replay: ReplayView | None = None,
        *,
        conservative_weight: NonNegative = 5.0,
        conservative_actions: PositiveInt = 10,
        **options: Any,
    ) -> None:
        super().__init__(model, replay, **options)
        if not isinstance(model, SoftActorCritic):
            raise ValueError(f"the model is a {type(model).__name__}; it must be a SoftActorCritic")
        self.conservative_weight = conservative_weight
        self.conservative_actions = conservative_actions

    def critic_loss(self, batch: Batch, outputs: Tensor, target: Tensor, generator: torch.Generator) -> Tensor:
        """Add the mean of log sum exp Q(s, a) - Q(s, a taken) to SAC's loss (eq. 4), summed over the critics.

        The sum over all actions is an integral, estimated from drawn actions by their densities (appendix F):
        log mean exp (Q(s, a) - log density(a)).
        """
        critic, count = self.model.critic, 3 * self.conservative_actions
        action, log_density = self._draw(batch, generator)
        values = critic(_repeated(batch.obs, count), action) - log_density
        soft = values.view(len(values), count, -1).logsumexp(1) - math.log(count)
        gap = joint_loss(soft - critic.output.forward(outputs), batch.extras.get("weight"))
        return super().critic_loss(batch, outputs, target, generator) + self.conservative_weight * gap

    @torch.no_grad()
    def _draw(self, batch: Batch, generator: torch.Generator) -> Drawn:
        """Draw actions of all three kinds for each row, [count * B, n], with their log-densities, scaled to [-1, 1]."""
        model, number = cast(SoftActorCritic, self.model), self.conservative_actions
        rows, components = number * len(batch.action), model.bounds.num_components
        scaled = batch.action.new_empty(rows, components).uniform_(-1.0, 1.0, generator=generator)
        uniform = Drawn(model.bounds.to_env(scaled), scaled.new_full((rows,), -components * math.log(2.0)))
        present, following = (model.draw(_repeated(obs, number), generator) for obs in (batch.obs, batch.next_obs))
        return Drawn(*(torch.cat(kinds) for kinds in zip(uniform, present, following, strict=True)))


def _repeated(obs: Obs, times: int) -> Obs:
    """Repeat observations [B, ...] as a whole, [times * B, ...]."""
    return tree.map_leaves(lambda leaf: leaf.repeat(times, *(1,) * (leaf.ndim - 1)), obs)
