"""Asynchronous PPO: PPO's clipped objective around V-trace, for agents that never wait for the learner.

It follows IMPACT (Luo et al. 2020, arXiv:1912.00167), where the policy that a batch is clipped around is not the one
that acted, and Sample Factory (Petrenko et al. 2020, arXiv:2006.11751).
"""

from __future__ import annotations

from typing import Any

import torch

from surreal.base.contracts import ReplayView
from surreal.base.ranges import Positive, checked
from surreal.base.types import TrajectoryBatch
from surreal.learner.advantages import vtrace
from surreal.learner.on_policy.evaluating import Targets, chosen_by_policy, evaluate, policy_mask, recorded
from surreal.learner.on_policy.ppo import PPOLearner
from surreal.model.base import Model


class APPOLearner(PPOLearner):
    """Learns a policy and its value from trajectories of older versions of that policy, by PPO's epochs.

    With mu, the policy that acted, and p, the policy before the update, V-trace gives the targets of the value and
    the advantages A, which have the weight min(rho_bar, p / mu). The epochs move pi down
    -mean(min(r A, clip(r, 1 - clip_range, 1 + clip_range) A)), with r = pi / p: p limits the steps, however old mu is.
    IMPACT clips around a slowly copied network in place of p, and bounds the weight in another way.

    Args:
        rho_bar: bound of the importance weights; lowering it has less variance, and values a policy closer to the one
            that acted.
        c_bar: bound of the weights that traces are cut by, <= rho_bar; lowering it learns more slowly.
        options: see `PPOLearner`; `gae_lambda` is the share of each trace that is kept.
    """

    @checked
    def __init__(
        self,
        model: Model,
        replay: ReplayView | None = None,
        *,
        rho_bar: Positive = 1.0,
        c_bar: Positive = 1.0,
        **options: Any,
    ) -> None:
        super().__init__(model, replay, **options)
        if c_bar > rho_bar:
            raise ValueError(f"c_bar is {c_bar}; it must be <= rho_bar, which is {rho_bar}")
        self.rho_bar = rho_bar
        self.c_bar = c_bar

    @torch.no_grad()
    def targets(self, batch: TrajectoryBatch) -> Targets:
        policy, log_probability, value = evaluate(self.model, batch)
        returns, advantage = vtrace(
            log_probability - recorded(batch, "log_probability"),
            batch.reward,
            batch.discount,
            batch.mask,
            value,
            rho_bar=self.rho_bar,
            c_bar=self.c_bar,
            trace_lambda=self.gae_lambda,
        )
        advantage = self.normalised(advantage, policy_mask(batch))
        return Targets(policy.frozen(), log_probability, value[:-1], advantage, returns, chosen_by_policy(batch))
