"""`ActorCriticLearner`: base of learners with one loss of a policy, its value and its entropy.

def learn(self, i, batch):
    policy, log_probability, value = evaluate(self.model, batch)
    ...
    return self.descend(policy_loss, critic_loss, self.entropy(policy, batch.action, batch.mask))

Curiosity (`learner/curiosity.py`) adds to the rewards of a batch before `learn` gets it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, cast

from torch import Tensor
from typing_extensions import TypeVar

from surreal.base.contracts import ReplayView
from surreal.base.ranges import NonNegative, NonNegativeInt, Positive, PositiveInt, checked
from surreal.base.specs import ObsSpec
from surreal.base.types import TrajectoryBatch
from surreal.learner.curiosity import CuriositySettings, Surprise, read_curiosity, surprise
from surreal.learner.gradients import GradientLearner, one_graph
from surreal.learner.on_policy.evaluating import evaluate, filtered, policy_mask, recorded
from surreal.learner.on_policy.policy_losses import mean_of_steps, normalise, policy_drift
from surreal.learner.stepping.optimizers import MODEL
from surreal.learner.stepping.reports import normal_values
from surreal.model import ActorCritic, Distribution
from surreal.model.base import Model

ModelT = TypeVar("ModelT", bound=Model, default=Model)
#: Group of the parameters of the value's separate network, where it has a separate learning rate.
VALUE = "value"
#: Group of the parameters of curiosity's networks, and their name in checkpoints.
CURIOSITY = "curiosity"


class ActorCriticLearner(GradientLearner[ModelT, TrajectoryBatch]):
    """Base of learners of a policy and its value from trajectories. A subclass gives `learn`.

    The batch that `learn` gets has rewards as the model's filter scales them, plus those of curiosity.

    Args:
        model: gives a `PolicyValue`, see `surreal.model.ActorCritic`.
        replay: gives trajectories, with what `surreal.agent.PolicyAgent` records.
        entropy_beta: weight of the policy's entropy; raising it keeps the policy random for longer.
        critic_scale: weight of the value's loss; raising it fits the value faster.
        normalize_advantage: whether to shift and scale the advantages of a batch to mean 0 and deviation 1.
        entropy_type: Gauss: the entropy of the whole action, which is the sum over its components. Origin: the mean
            over its components, as in the A3C paper, so that `entropy_beta` means the same for any number of
            components. A discrete choice has one component.
        critic_learning_rate: learning rate of the value, if the model has its own network for it
            (`value_hidden_sizes`). None: `initial_learning_rate`, which is always the policy's.
        icm: intrinsic curiosity, reward for what could not be foreseen, as `{reward_scale, forward_share,
            learning_rate, hidden_sizes, convolutions, activation, units}`; see `surreal.learner.curiosity`. {} takes
            all defaults. None: none.
        seed: seed of the initial parameters of curiosity's networks.
    """

    takes = frozenset({"trajectories"})
    skipped_limit = 3

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "improve" in vars(cls):  # apps with a copy of an earlier learner, whose `learn` filtered the batch itself
            if "learn" in vars(cls):
                cls.around_learn = GradientLearner.around_learn  # type: ignore[method-assign]
            else:
                cls.learn = lambda self, _i, batch: self.improve(batch)  # type: ignore[assignment, attr-defined]

    @checked
    def __init__(
        self,
        model: ModelT,
        replay: ReplayView | None = None,
        *,
        entropy_beta: NonNegative = 0.0,
        critic_scale: NonNegative = 0.5,
        normalize_advantage: bool = True,
        entropy_type: Literal["Gauss", "Origin"] = "Gauss",
        critic_learning_rate: Positive | None = None,
        icm: Mapping[str, Any] | None = None,
        gradients_norm_clipping: Positive | None = 0.5,
        metrics_interval: PositiveInt = 1,
        seed: NonNegativeInt = 0,
        **options: Any,
    ) -> None:
        super().__init__(
            model, replay, gradients_norm_clipping=gradients_norm_clipping, metrics_interval=metrics_interval, **options
        )
        if critic_learning_rate is not None and model.value_hiddens is None:
            problem = f"critic_learning_rate is {critic_learning_rate}"
            raise ValueError(f"{problem}, but the model has no separate network for the value (value_hidden_sizes)")
        self._icm = read_curiosity(icm)
        if self._icm is not None and not isinstance(model, ActorCritic):
            raise ValueError(f"the model is a {type(model).__name__}; icm needs an ActorCritic")
        self._curiosity_metrics: dict[str, Tensor] = {}
        self._seed = seed
        self.entropy_beta = entropy_beta
        self.critic_scale = critic_scale
        self.normalize_advantage = normalize_advantage
        self._is_mean_entropy = entropy_type == "Origin"
        self._critic_learning_rate = critic_learning_rate
        #: Of parameters, that a step down policy's and value's loss moves.
        self.groups: tuple[str, ...] = (MODEL,) if critic_learning_rate is None else (MODEL, VALUE)

    def build(self) -> None:
        """Make the optimizers: one, or one of the policy and one of the value; and what curiosity needs."""
        if self._critic_learning_rate is None:
            super().build()
        else:
            named = list(self.model.named_parameters())
            values = [(name, tensor) for name, tensor in named if name.startswith("value_network.")]
            others = [(name, tensor) for name, tensor in named if not name.startswith("value_network.")]
            self.optimize_group(MODEL, others)
            self.optimize_group(VALUE, values, learning_rate=self._critic_learning_rate)
        if self._icm is not None:
            model = cast(ActorCritic, self.model)
            self.dynamics = self._icm.make(cast(ObsSpec, model.obs_spec), model.action_space, seed=self._seed)
            self.keep(CURIOSITY, self.dynamics.to(self.device))
            parameters = self.dynamics.named_parameters()
            self.optimize_group(CURIOSITY, parameters, learning_rate=self._icm.learning_rate)

    @contextmanager
    def around_learn(self, batch: TrajectoryBatch) -> Iterator[TrajectoryBatch]:
        with super().around_learn(batch) as seen, filtered(self.model, seen, self.stepper.share_counts) as scaled:
            yield scaled if self._icm is None else self._with_surprise(scaled)

    def common_metrics(self) -> Mapping[str, Tensor | float]:
        return {**super().common_metrics(), **self._curiosity_metrics}

    @one_graph
    def update_curiosity(self, batch: TrajectoryBatch) -> dict[str, Tensor]:
        """Take one step of curiosity's networks; returns the reward before it, [T, B], and metrics."""
        found = self.foresee(batch)
        loss = mean_of_steps(found.loss, batch.mask)
        self.step(loss, CURIOSITY)
        intrinsic = mean_of_steps(found.reward, batch.mask)
        return {"reward": found.reward, "curiosity_loss": loss, "intrinsic_reward_mean": intrinsic}

    def foresee(self, batch: TrajectoryBatch) -> Surprise:
        """Compute reward and loss of curiosity, for observations as the policy sees them."""
        settings, obs_filter = cast(CuriositySettings, self._icm), cast(ActorCritic, self.model).obs_filter
        if obs_filter is not None:
            batch = batch._replace(obs=obs_filter.forward(batch.obs))
        return surprise(self.dynamics, batch, settings)

    def _with_surprise(self, batch: TrajectoryBatch) -> TrajectoryBatch:
        metrics = dict(self.update_curiosity(batch))
        reward = metrics.pop("reward")
        self._curiosity_metrics = metrics
        return batch._replace(reward=batch.reward + reward)

    def policy_values(self, batch: TrajectoryBatch) -> Mapping[str, Tensor]:
        return normal_values(evaluate(self.model, batch).policy)

    def normalised(self, advantage: Tensor, mask: Tensor) -> Tensor:
        """Return advantages [T, B] as they weigh actions: normalized, if they should be."""
        return normalise(advantage, mask) if self.normalize_advantage else advantage

    def entropy(self, policy: Distribution, action: Tensor, mask: Tensor | None) -> Tensor:
        """Return the mean entropy of the steps [...], as `entropy_type` counts it; `mask` None: all are steps."""
        entropy = policy.entropy()
        mean = mean_of_steps(entropy, mask)
        return mean / math.prod(action.shape[entropy.ndim :]) if self._is_mean_entropy else mean

    def drift(self, batch: TrajectoryBatch, log_probability: Tensor) -> dict[str, Tensor]:
        """Return `policy_drift` of log-probabilities [T, B], if agents recorded theirs; otherwise {}."""
        if "log_probability" not in batch.extras:
            return {}
        return policy_drift(log_probability.detach() - recorded(batch, "log_probability"), policy_mask(batch))

    def descend(self, policy_loss: Tensor, critic_loss: Tensor, entropy: Tensor) -> dict[str, Tensor]:
        """Take one step down the weighted sum of three scalars, and return them as metrics."""
        self.step(policy_loss + self.critic_scale * critic_loss - self.entropy_beta * entropy, *self.groups)
        return {"policy_loss": policy_loss, "value_loss": critic_loss, "entropy": entropy}
