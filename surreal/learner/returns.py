"""Targets to learn towards: pure, rank-checked, tested against a naive loop.

The n-step sum itself is made by the replay (`Batch.reward`), and `Batch.discount` is gamma^h * (1 - terminated) for the
h steps summed; so a truncated episode bootstraps, a terminated one does not, and nothing here knows gamma or n.
"""

from __future__ import annotations

import torch
from torch import Tensor

from surreal.learner.losses import check_rank


def q_target(
    reward: Tensor, discount: Tensor, next_q: Tensor, select_q: Tensor | None = None, legal: Tensor | None = None
) -> Tensor:
    """Q-learning target: reward + discount * next_q[argmax], Mnih et al. 2013, arXiv:1312.5602.

    Double Q-learning (van Hasselt et al. 2016, arXiv:1509.06461, eq. 4) chooses the action by another network than the
    one which values it: `select_q` is the online network's, `next_q` the target network's.

    Args:
        reward: [B] float32, n-step sum.
        discount: [B] float32, gamma^h * (1 - terminated).
        next_q: [B, n_actions] float32, the target network's values of the bootstrap observation.
        select_q: [B, n_actions] float32 values that choose the action; None lets `next_q` choose.
        legal: see `among_legal`.

    Returns:
        [B] float32; call it under `torch.no_grad()`.
    """
    check_rank(1, reward=reward, discount=discount)
    choosing = next_q if select_q is None else select_q
    check_rank(2, next_q=next_q, select_q=choosing)
    choosing = among_legal(choosing, legal)
    if select_q is None:
        return torch.addcmul(reward, discount, choosing.amax(1))
    best = choosing.argmax(1, keepdim=True)
    return torch.addcmul(reward, discount, next_q.gather(1, best).squeeze(1))


def among_legal(q: Tensor, legal: Tensor | None) -> Tensor:
    """Give values to choose an action by: minus infinity for what is illegal.

    Args:
        q: [..., n_actions] float32.
        legal: bool like `q`, actions that may be chosen; a row without any, as at an episode's end, has them all. None:
            all.

    Returns:
        [..., n_actions] float32.
    """
    if legal is None:
        return q
    check_rank(q.ndim, legal=legal)
    return q.masked_fill(~legal & legal.any(-1, keepdim=True), -torch.inf)


def bootstrapped_returns(reward: Tensor, discount: Tensor, mask: Tensor, value: Tensor) -> Tensor:
    """Discounted returns up to the end of each trajectory, and the value of the observation there.

    R_t = reward_t + discount_t * R_(t+1), with R_T = value_T. A row without a step holds the final observation of an
    episode that was cut, so R_t = value_t there; after a terminal step the discount is 0.

    Args:
        reward: [T, B] float32.
        discount: [T, B] float32, gamma * (1 - terminated).
        mask: [T, B] float32, 1 for a step, 0 for a row without one.
        value: [T + 1, B] float32; zeros give what was collected, and nothing beyond.

    Returns:
        [T, B] float32; call it under `torch.no_grad()`.
    """
    check_rank(2, reward=reward, discount=discount, mask=mask, value=value)
    following, returns = value[-1], []
    for t in reversed(range(len(reward))):
        following = torch.where(mask[t] > 0.0, reward[t] + discount[t] * following, value[t])
        returns.append(following)
    return torch.stack(returns[::-1])
