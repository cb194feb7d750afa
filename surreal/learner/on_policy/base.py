"""`ActorCriticLearner`: what learners share that step down one loss of a policy, its value and its entropy.

def improve(self, batch):
    policy, log_probability, value = evaluate(self.model, batch)
    ...
    return self.descend(policy_loss, critic_loss, mean_of_steps(policy.entropy(), batch.mask))
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from surreal.learner.base import ReplayView
from surreal.learner.gradients import GradientLearner
from surreal.learner.on_policy.evaluating import count_observations, scale_rewards
from surreal.learner.on_policy.policy_losses import normalise
from surreal.learner.option_checks import check_not_negative
from surreal.types import TrajectoryBatch
from surreal.utils.pytorch import Module


class ActorCriticLearner(GradientLearner):
    """Base of learners of a policy and its value from trajectories. A subclass gives `improve`.

    Args:
        model: gives a `PolicyValue`, see `surreal.model.ActorCritic`.
        replay: gives trajectories, with what `surreal.agent.PolicyAgent` records.
        entropy_beta: weight of the policy's entropy, >= 0; raising it keeps the policy random for longer.
        critic_scale: weight of the value's loss, >= 0; raising it fits the value faster.
        normalize_advantage: shift and scale the advantages of a batch to mean 0 and deviation 1.
        options: see `GradientLearner`.
    """

    takes = frozenset({"trajectories"})

    def __init__(
        self,
        model: Module,
        replay: ReplayView | None = None,
        *,
        entropy_beta: float = 0.0,
        critic_scale: float = 0.5,
        normalize_advantage: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(model, replay, **options)
        check_not_negative(entropy_beta=entropy_beta, critic_scale=critic_scale)
        self.entropy_beta = entropy_beta
        self.critic_scale = critic_scale
        self.normalize_advantage = normalize_advantage

    def learn(self, i: int, batch: TrajectoryBatch) -> Mapping[str, Tensor | float]:
        """Call `improve` with rewards as the model's filter scales them, and count the observations afterwards."""
        batch = scale_rewards(self.model, batch)
        metrics = self.improve(batch)
        count_observations(self.model, batch)
        return metrics

    @abstractmethod
    def improve(self, batch: TrajectoryBatch) -> Mapping[str, Tensor | float]:
        """Do one update, and give metrics as `learn` does; the rewards are scaled already."""

    def normalised(self, advantage: Tensor, mask: Tensor) -> Tensor:
        """Give advantages [T, B] as they weigh actions: normalised, if they should be."""
        return normalise(advantage, mask) if self.normalize_advantage else advantage

    def descend(self, policy_loss: Tensor, critic_loss: Tensor, entropy: Tensor) -> dict[str, Tensor | float]:
        """Do one step down the weighted sum of three scalars, and give them as metrics."""
        self.step(policy_loss + self.critic_scale * critic_loss - self.entropy_beta * entropy)
        return {"policy_loss": policy_loss, "value_loss": critic_loss, "entropy": entropy}
