"""The bases of learners from a replay's transitions: of all of them, and of those with an actor and critics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from surreal.base.contracts import ReplayView
from surreal.base.ranges import NonNegative, NonNegativeInt, Positive, PositiveInt, PositiveShare, checked
from surreal.base.types import IS_INTERVENTION, Batch
from surreal.learner.base import ModelT
from surreal.learner.gradients import GradientLearner
from surreal.learner.losses import TargetNetwork, UpdateNoise


class TransitionLearner(GradientLearner[ModelT, Batch]):
    """Base of learners from transitions, whose losses are weighted by `batch.extras["weight"]`.

    Args:
        intervention_weight: weight of the TD loss of steps whose action something else chose; raising it learns more
            from what a person or a teacher did, next to the agent's own steps.
    """

    takes = frozenset({"transitions"})

    @checked
    def __init__(
        self, model: ModelT, replay: ReplayView | None = None, *, intervention_weight: NonNegative = 1.0, **options: Any
    ) -> None:
        super().__init__(model, replay, **options)
        self.intervention_weight = intervention_weight
        if intervention_weight != 1.0:
            self.around_learn = self._weighing  # type: ignore[method-assign]

    @contextmanager
    def _weighing(self, batch: Batch) -> Iterator[Batch]:
        if (is_intervention := batch.extras.get(IS_INTERVENTION)) is not None:
            weight = 1.0 + (self.intervention_weight - 1.0) * is_intervention.float()
            batch = batch._replace(extras={**batch.extras, "weight": weight * batch.extras.get("weight", 1.0)})
        with super().around_learn(batch) as seen:
            yield seen


class OffPolicyActorCriticLearner(TransitionLearner[ModelT]):
    """Base of learners of an actor, and of the critics whose values it climbs. A subclass gives `update_from`.

    Args:
        critic_learning_rate: learning rate of the critics; None: `initial_learning_rate`, always that of the actor.
        target_update_tau: share by which the target networks move in each of their steps; raising it makes them follow
            faster. None: there are none, and the networks themselves give the targets (CrossQ).
        policy_delay: updates of the critics for each update of everything that is not theirs; raising it lets the
            policy follow more accurate values.
        updates_per_batch: updates that are taken with each batch, each with other noise; raising it learns more from
            each sample, and saves the time of sampling. Metrics and schedules count a batch as one update.
        joint_batch: whether the critics compute the actions taken and the next ones in one batch, so that batch norms
            see both (CrossQ, arXiv:1902.05605); not for discrete actions.
        intervention_cloning: weight, in the policy's loss, of the cloning loss (see `BCLearner`) of steps whose action
            something else chose; raising it imitates a person or a teacher more. 0: none.
        seed: seed of the noise.
    """

    actor_metrics: tuple[str, ...] = ("policy_loss",)  #: of `update_from`, which an update without the actor's lacks

    @checked
    def __init__(
        self,
        model: ModelT,
        replay: ReplayView | None = None,
        *,
        critic_learning_rate: Positive | None = None,
        target_update_tau: PositiveShare | None = 0.005,
        policy_delay: PositiveInt = 1,
        updates_per_batch: PositiveInt = 1,
        joint_batch: bool = False,
        intervention_cloning: NonNegative = 0.0,
        gradients_norm_clipping: Positive | None = None,
        seed: NonNegativeInt = 0,
        **options: Any,
    ) -> None:
        super().__init__(model, replay, gradients_norm_clipping=gradients_norm_clipping, **options)
        self.critic_learning_rate = critic_learning_rate
        self.policy_delay = policy_delay
        self.updates_per_batch = updates_per_batch
        self.takes_several_steps = updates_per_batch > 1
        self.joint_batch = joint_batch
        self.intervention_cloning = intervention_cloning
        self.target: TargetNetwork | None = None
        self._tau = target_update_tau
        self._noise = UpdateNoise(seed, self.device)
        self._actor_metrics = dict[str, Tensor]()  # of its last update

    def learn(self, i: int, batch: Batch) -> Mapping[str, Tensor | float]:
        found = dict[str, Tensor]()
        for number in range(self.updates * self.updates_per_batch, (self.updates + 1) * self.updates_per_batch):
            moves_actor = (number + 1) % self.policy_delay == 0
            found = dict(self.update_from(batch, self.generator_of(number), moves_actor, self.is_metrics_due))
            self._actor_metrics |= {name: found.pop(name) for name in self.actor_metrics if name in found}
        self.send_priorities(batch, found.pop("td_error"))
        return found and {**found, **self._actor_metrics}

    def generator_of(self, number: int) -> torch.Generator | None:
        """Return the source of an update's noise; None if it has none."""
        return self._noise.of(number)

    @abstractmethod
    def update_from(self, batch: Batch, generator: Any, moves_actor: bool, is_shown: bool) -> Mapping[str, Tensor]:
        """Update once; returns the absolute TD error [B], the actor's metrics if it moves, and others if shown."""
