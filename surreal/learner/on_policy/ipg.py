"""Interpolated policy gradient: Gu et al. 2017, arXiv:1706.00387.

The whole algorithm is `IPGLearner.learn`: critics are fitted to all steps of a batch, then the policy goes along
a mixture of two gradients, the likelihood-ratio one on fresh steps, and the critics' one at observations of a
replay. The first has no bias, the second hardly any variance.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from surreal.base import tree
from surreal.base.contracts import ReplayView
from surreal.base.ranges import NonNegativeInt, Positive, PositiveInt, PositiveShare, Share, checked
from surreal.base.specs import ObsSpec
from surreal.base.types import TrajectoryBatch
from surreal.learner.advantages import generalised_advantages
from surreal.learner.gradients import one_graph
from surreal.learner.losses import UpdateNoise, critic_loss
from surreal.learner.on_policy.base import ActorCriticLearner
from surreal.learner.on_policy.evaluating import compute, legal, policy_mask
from surreal.learner.on_policy.minibatches import Minibatch, minibatches
from surreal.learner.on_policy.policy_critics import PolicyCritics, make_policy_critics
from surreal.learner.on_policy.policy_losses import explained_variance, interpolated_loss, mean_of_steps, value_loss
from surreal.model import ActorCritic, Distribution
from surreal.model.base import make_generator
from surreal.model.conv import ConvStage, read_convolutions

CRITIC = "critic"


class Steps(NamedTuple):
    """The steps of a batch, [N, ...] each."""

    obs: Any
    policy: Distribution
    log_probability: Tensor
    action: Tensor
    value: Tensor
    advantage: Tensor
    is_on_policy: Tensor  #: float32, fresh ones whose action the policy chose
    is_fresh: Tensor  #: float32
    is_sampled: Tensor  #: float32, whose observations the critics are asked about: the replayed ones, if there are any


class Following(NamedTuple):
    """Observations, policy and rewards after N steps."""

    obs: Any  #: as the critics read them
    policy: Distribution  #: what it would do there
    reward: Tensor
    discount: Tensor


class IPGLearner(ActorCriticLearner[ActorCritic]):
    """Learns a policy from fresh trajectories and from critics that learn off-policy, in one update.

    Args:
        model: an `ActorCritic` without memory, over discrete actions, or a Box with finite bounds.
        replay: gives trajectories; mixed with replayed ones, or fresh alone: then the critics are asked about these.
        interpolation_weight: nu of the paper, the weight of the critics' gradient; 0 is A2C, 1 uses only the critics.
            Raising it has less variance, and trusts the critics more.
        control_variate: whether to subtract the critics' estimate from the advantages, and give the critics' gradient
            its full weight in return. This has less variance if the critics are accurate.
        gae_lambda: lambda of generalized advantages; raising it has more variance and less bias.
        normalize_advantage: whether to shift and scale the advantages of a batch to mean 0 and deviation 1, and scale
            the critics' values by the same factor.
        critics: number of networks that learn Q; the smallest value is used.
        critic_hidden_sizes: units of their dense layers; None: those of the model.
        critic_convolutions: for images, before these layers, as in `ComposedModel`; None takes images as vectors.
        critic_learning_rate: learning rate of the critics; None: `initial_learning_rate`, which is always the
            policy's.
        critic_iterations: epochs of the critics over a batch.
        mini_batch: steps of a minibatch of the critics; None: the whole batch.
        target_update_tau: share by which the target critics move to the critics after each minibatch.
        seed: seed of the critics' initial parameters, the order of minibatches and the actions drawn.
    """

    takes = frozenset({"mixed", "trajectories"})

    @checked
    def __init__(
        self,
        model: ActorCritic,
        replay: ReplayView | None = None,
        *,
        interpolation_weight: Share = 0.2,
        control_variate: bool = False,
        gae_lambda: Share = 0.95,
        normalize_advantage: bool = True,
        critics: PositiveInt = 2,
        critic_hidden_sizes: Sequence[PositiveInt] | None = None,
        critic_convolutions: str | Sequence[ConvStage | Mapping[str, Any]] | None = None,
        critic_learning_rate: Positive | None = None,
        critic_iterations: PositiveInt = 1,
        mini_batch: PositiveInt | None = 64,
        target_update_tau: PositiveShare = 0.005,
        seed: NonNegativeInt = 0,
        **options: Any,
    ) -> None:
        super().__init__(model, replay, normalize_advantage=normalize_advantage, seed=seed, **options)
        if not isinstance(model, ActorCritic) or model.state_shape is not None:
            raise ValueError(f"the model is a {type(model).__name__}; it must be an ActorCritic without use_lstm")
        if self._icm is not None:
            raise ValueError("icm is set; curiosity would reward fresh steps only, and not replayed ones: leave it out")
        self.interpolation_weight = interpolation_weight
        self.control_variate = control_variate
        self.gae_lambda = gae_lambda
        self._num_critics = critics
        self._critic_hiddens = model.hiddens if critic_hidden_sizes is None else critic_hidden_sizes
        self._critic_convolutions = None if critic_convolutions is None else read_convolutions(critic_convolutions)
        self._q_learning_rate = critic_learning_rate
        self.critic_iterations = critic_iterations
        self.mini_batch = mini_batch
        self._tau = target_update_tau
        self._noise = UpdateNoise(seed, self.device)

    def build(self) -> None:
        super().build()
        self.critics: PolicyCritics = make_policy_critics(
            cast(ObsSpec, self.model.obs_spec),
            self.model.action_space,
            count=self._num_critics,
            hiddens=self._critic_hiddens,
            convolutions=self._critic_convolutions,
            tau=self._tau,
            generator=make_generator(self._seed),
            device=self.device,
        )
        self.keep("critics", self.critics.critics)
        self.keep("target", self.critics.target.network)
        named = self.critics.critics.named_parameters()
        self.optimize_group(CRITIC, named, learning_rate=self._q_learning_rate)

    @contextmanager
    def around_learn(self, batch: TrajectoryBatch) -> Iterator[TrajectoryBatch]:
        # Filters count a step when it is fresh, and not when it is replayed.
        with super().around_learn(batch._replace(mask=on_policy_mask(batch))) as scaled:
            yield scaled._replace(mask=batch.mask)

    def learn(self, i: int, batch: TrajectoryBatch) -> Mapping[str, Tensor | float]:
        q_loss, q = self.fit_critics(batch)
        metrics = dict(self.update_from(batch, *find_steps(batch), self.is_metrics_due))
        if self.is_metrics_due:
            metrics |= {"loss": q_loss, "q_mean": q.mean(), "q_max": q.max()}
        return metrics

    @one_graph
    def update_from(
        self, batch: TrajectoryBatch, index: tuple[Tensor, ...], has_replayed: bool, is_shown: bool
    ) -> dict[str, Tensor]:
        """Take one step of policy and value, and return its metrics."""
        steps = self.evaluate(batch, index, has_replayed)
        fresh, returns = steps.is_fresh, (steps.advantage + steps.value).detach()
        entropy = self.entropy(steps.policy, steps.action, steps.is_on_policy)
        metrics = self.descend(self.policy_loss(steps), value_loss(steps.value, returns, fresh), entropy)
        if is_shown:
            metrics["explained_variance"] = explained_variance(steps.value, returns, fresh)
        return metrics

    def fit_critics(self, batch: TrajectoryBatch) -> tuple[Tensor, Tensor]:
        """Move the critics toward one-step targets of the current policy; returns the last loss and the last values."""
        rng, generator = np.random.default_rng((self._seed, self.updates)), self._noise.of(self.updates)
        policy = self.next_policy(batch)
        batch = batch._replace(obs=self._filtered(batch.obs))
        loss, values = torch.zeros(()), torch.zeros(1)
        for _ in range(self.critic_iterations):
            for part in minibatches(batch, self.mini_batch, whole=False, rng=rng):
                found = self.update_critics_from(part.alone(), following(part, batch, policy), generator)
                loss, values = found["loss"].detach(), found["q"].detach()
        return loss, values

    @one_graph
    def update_critics_from(self, part: Minibatch, after: Following, generator: torch.Generator) -> dict[str, Tensor]:
        """Take one step of the critics; returns the loss and the values."""
        q, target = self.estimate(part, after, generator)
        loss = critic_loss(q, target)
        self.step(loss, CRITIC)
        self.critics.target.follow()
        return {"loss": loss, "q": q}

    @torch.no_grad()
    def next_policy(self, batch: TrajectoryBatch) -> Distribution:
        """Return the policy's actions after each step, [T, B]."""
        policy: Distribution = compute(self.model, batch.obs)[0]
        mask = batch.extras.get("next_action_mask")
        if mask is None:
            return policy[1:]
        mask = mask.to(torch.bool)
        return policy[1:].masked(mask | ~mask.any(-1, keepdim=True))

    def estimate(self, part: Minibatch, after: Following, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Estimate the value of N actions taken, and its target.

        Args:
            part: N steps of the batch, with observations as the critics read them.
            after: see `following`.
            generator: draws actions, where they are drawn.

        Returns:
            `(q, target)`, [critics, N] and [N] float32; the gradient flows through `q` only.
        """
        value = self.critics.bootstrap(after.obs, after.policy, generator)
        target = torch.addcmul(after.reward, after.discount, value)
        return self.critics.critics(part.obs, part.action), target

    def evaluate(self, batch: TrajectoryBatch, index: tuple[Tensor, ...], has_replayed: bool) -> Steps:
        """Compute what the policy's update needs from the steps of a batch, which are at `index`."""
        policy, value = compute(self.model, batch.obs)
        with torch.no_grad():
            advantage = generalised_advantages(batch.reward, batch.discount, batch.mask, value, self.gae_lambda)
        policy = legal(policy[:-1], batch.extras.get("action_mask"))
        policy, fresh, action = policy[index], on_policy_mask(batch)[index], batch.action[index]
        chosen = policy_mask(batch)[index]
        return Steps(
            obs=tree.map_leaves(lambda leaf: leaf[:-1][index], self._filtered(batch.obs)),
            policy=policy,
            log_probability=policy.log_probability(action).masked_fill(chosen == 0.0, 0.0),
            action=action,
            value=value[:-1][index],
            advantage=advantage[index],
            is_on_policy=fresh * chosen,
            is_fresh=fresh,
            is_sampled=1.0 - fresh if has_replayed else fresh,
        )

    def policy_loss(self, steps: Steps) -> Tensor:
        """Compute the loss of the policy, whose gradient is the interpolated one: a scalar."""
        share, signal = self.interpolation_weight, steps.advantage
        expected = self.critics.expected(steps.obs, steps.policy)
        if self.control_variate:
            signal = signal - self.critics.advantage(steps.obs, steps.policy, steps.action).detach()
        if self.normalize_advantage:
            signal = signal - mean_of_steps(signal, steps.is_on_policy)
            deviation = mean_of_steps(signal.square(), steps.is_on_policy).sqrt() + 1e-8
            signal, expected = signal / deviation, expected / deviation
        return interpolated_loss(
            steps.log_probability,
            signal,
            steps.is_on_policy,
            expected,
            steps.is_sampled,
            share=share,
            critic_weight=1.0 if self.control_variate else share,
        )

    def _filtered(self, obs: Any) -> Any:
        """Return observations as the policy sees them."""
        return obs if self.model.obs_filter is None else self.model.obs_filter.forward(obs)


def find_steps(batch: TrajectoryBatch) -> tuple[tuple[Tensor, ...], bool]:
    """Return where the steps of a batch are, and whether some of them are replayed."""
    index = batch.mask.nonzero(as_tuple=True)
    return index, not bool(on_policy_mask(batch)[index].all())


def following(part: Minibatch, batch: TrajectoryBatch, policy: Distribution) -> Following:
    """Find observations (as the critics read them), policy and rewards after the N steps of a minibatch."""
    index = part.index
    next_obs = tree.map_leaves(lambda leaf: leaf[1:][index], batch.obs)
    return Following(next_obs, policy[index], batch.reward[index], batch.discount[index])


def on_policy_mask(batch: TrajectoryBatch) -> Tensor:
    """Return 1 for fresh steps, [T, B] float32; 0 for replayed ones and for rows without a step."""
    mask: Tensor = batch.mask * batch.extras.get("is_on_policy", torch.ones_like(batch.mask))
    return mask
