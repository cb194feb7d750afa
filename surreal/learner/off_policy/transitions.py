"""`TransitionLearner`: the base of learners from a replay's transitions, in which interventions may weigh more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from surreal.base.contracts import ReplayView
from surreal.base.ranges import NonNegative, checked
from surreal.base.types import IS_INTERVENTION, Batch
from surreal.learner.base import ModelT
from surreal.learner.gradients import GradientLearner


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

    @contextmanager
    def around_learn(self, batch: Batch) -> Iterator[Batch]:
        is_intervention = batch.extras.get(IS_INTERVENTION)
        if is_intervention is not None and self.intervention_weight != 1.0:
            weight = 1.0 + (self.intervention_weight - 1.0) * is_intervention.float()
            batch = batch._replace(extras={**batch.extras, "weight": weight * batch.extras.get("weight", 1.0)})
        with super().around_learn(batch) as seen:
            yield seen
