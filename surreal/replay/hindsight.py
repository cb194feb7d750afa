"""HindsightReplay: episodes that missed their goal teach how to reach what they achieved instead."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from surreal.base.ranges import Share, checked
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.codec import Contract
from surreal.distributed.experience.shards import ReplayShards
from surreal.replay.base import UniformReplay
from surreal.replay.store.rows import Observations
from surreal.replay.stream.conflicts import ReplayPlan, single_step_conflicts
from surreal.replay.trajectories.hindsight import GoalFunction, HindsightStore


class HindsightReplay(UniformReplay):
    """Uniform over transitions, of which a share is relabeled with goals achieved later in their episodes (HER).

    Observations are a `Dict` with `achieved_goal` and `desired_goal`, as gymnasium-robotics has them. Nothing changes
    in the stream: goals are drawn again whenever a transition is sampled. Of episodes of more than 1,024 steps, a goal
    comes from the same 1,024 steps. Andrychowicz et al. 2017, arXiv:1707.01495.

    Args:
        compute_reward: rewards [N] of (achieved_goal [N, ...], desired_goal [N, ...], {}), as the environment's
            function of this name; called on the replay's thread. A run takes it from the environment.
        compute_terminated: whether the episode ends there [N], of the same arguments; None: a relabeled transition ends
            its episode if the recorded one did.
        her_ratio: probability that a transition is relabeled; k / (k + 1) is k relabeled ones for each original.
        options: arguments of `Replay`, without `n_step`.
    """

    @checked
    def __init__(
        self,
        client: RedisClient | ReplayShards,
        *,
        compute_reward: GoalFunction,
        compute_terminated: GoalFunction | None = None,
        her_ratio: Share = 0.8,
        **options: Any,
    ) -> None:
        if options.get("n_step", 1) != 1:
            raise ValueError(f"n_step is {options['n_step']}; it must be 1, because rewards are computed step by step")
        super().__init__(client, **options)
        self.her_ratio = her_ratio
        self._compute_reward, self._compute_terminated = compute_reward, compute_terminated

    @classmethod
    def conflicts(cls, plan: ReplayPlan) -> Iterator[tuple[str, str]]:
        yield from super().conflicts(plan)
        yield from single_step_conflicts(plan, f"{cls.__name__} relabels single steps: leave it out, or set it to 1")

    def _make_store(self, contract: Contract, observations: Observations) -> HindsightStore:
        return HindsightStore(
            contract,
            capacity=self.capacity,
            gamma=self.gamma,
            her_ratio=self.her_ratio,
            compute_reward=self._compute_reward,
            compute_terminated=self._compute_terminated,
            rng=self.rng,
            observations=observations,
        )
