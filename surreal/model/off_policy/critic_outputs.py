"""Outputs of critics: the value of an action, or the distribution of its return.

    output = read_critic_output({"type": "quantile", "quantiles": 25, "dropped": 2})
    target = output.target(next_outputs, reward, discount)      # of the target critics, without gradient
    losses = output.losses(outputs, target)                     # of each critic and row

Rewards, discounts and values are in units of the environment's reward.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import torch
from annotated_types import Ge
from torch import Tensor, nn
from torch.nn.functional import huber_loss

from surreal.base.pytorch import check_rank
from surreal.base.ranges import NonNegativeInt, checked

#: How a configuration names one: `quantile`, or `{type: quantile, quantiles: 25, dropped: 2}`.
CriticOutputName = str | Mapping[str, Any]


class ScalarOutput(nn.Module):
    """One output: the value. Targets take the smallest of all critics (clipped double Q-learning, arXiv:1802.09477)."""

    size = 1  #: number of outputs

    @property
    def unit(self) -> Tensor | float:
        """Value of a temperature of 1, in units of reward."""
        return 1.0

    def forward(self, outputs: Tensor) -> Tensor:
        """Compute values, [..., size] -> [...]."""
        return outputs.squeeze(-1)

    def climbed(self, outputs: Tensor) -> Tensor:
        """Value what a policy climbs that knows its entropy, [critics, B, size] -> [B]: the smallest value."""
        return self.forward(outputs).amin(0)

    def target(self, outputs: Tensor, reward: Tensor, discount: Tensor, cost: Tensor | None = None) -> Tensor:
        """Compute what all critics learn.

        Args:
            outputs: [critics, B, size] float32, of the target critics, for the actions of the policy.
            reward: [B] float32, n-step sums.
            discount: [B] float32, gamma^n, 0 after a terminal step.
            cost: [B] float32, what the next action costs beyond its value (the temperature times its log-probability).

        Returns:
            [B, M] float32; M depends on the kind of output.
        """
        value = self.forward(outputs).amin(0)
        return torch.addcmul(reward, discount, value if cost is None else value - cost).unsqueeze(-1)

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Compute the losses of critics, [critics, B, size] and [B, M] -> [critics, B]."""
        return (self.forward(outputs) - target.squeeze(-1)).square()

    def errors(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Compute differences of values, without gradient, [critics, B, size] and [B, M] -> [critics, B]."""
        return target.mean(-1) - self.forward(outputs.detach())

    def follow(self, reward: Tensor, discount: Tensor) -> None:
        """Follow the size of returns, before an update from a batch; nothing here."""


class QuantileOutput(ScalarOutput):
    """Quantiles of the return, whose largest targets are dropped: TQC, Kuznetsov et al. 2020 (arXiv:2005.04269).

    The quantiles of all target critics are pooled and sorted, and the largest of them are left out. Policies climb the
    mean of all quantiles of all critics.

    Args:
        dropped: number of quantiles for each critic that targets leave out; raising it estimates values lower.
    """

    @checked
    def __init__(self, quantiles: Annotated[int, Ge(2)] = 25, dropped: NonNegativeInt = 2) -> None:
        super().__init__()
        if dropped >= quantiles:
            raise ValueError(f"dropped is {dropped}; it must be below quantiles, {quantiles}")
        self.size = quantiles
        self._dropped = dropped

    def forward(self, outputs: Tensor) -> Tensor:
        return outputs.mean(-1)

    def climbed(self, outputs: Tensor) -> Tensor:
        return outputs.mean((0, -1))

    def target(self, outputs: Tensor, reward: Tensor, discount: Tensor, cost: Tensor | None = None) -> Tensor:
        pooled = outputs.transpose(0, 1).flatten(1).sort(1).values
        kept = pooled[:, : pooled.shape[1] - self._dropped * len(outputs)]
        return torch.addcmul(reward[:, None], discount[:, None], kept if cost is None else kept - cost[:, None])

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        critics, rows, number = outputs.shape
        losses = quantile_huber_loss(outputs.flatten(0, 1), target.repeat(critics, 1))
        return losses.view(critics, rows) / number


class CategoricalOutput(ScalarOutput):
    """Probabilities of equally spaced returns: Bellemare et al. 2017 (C51, arXiv:1707.06887), for actor-critics.

    Targets take the distribution of the critic with the smallest value, shift it, and project it onto the bins. Returns
    are divided by a bound that grows with the rewards, so that bins need no units: the mean absolute reward of a batch,
    times 2 / (1 - discount), is the edge of the bins from then on, if it is larger than any before. Temperatures are in
    fifths of it, so that they need no units either: FlashSAC (arXiv:2604.04539) has returns scaled to [-5, 5].

    Args:
        bins: number of bins; more are finer, and cost more.
    """

    edge: Tensor
    centers: Tensor

    @checked
    def __init__(self, bins: Annotated[int, Ge(3)] = 101) -> None:
        super().__init__()
        self.size = bins
        self.register_buffer("edge", torch.full((), 1e-3))
        self.register_buffer("centers", torch.linspace(-1.0, 1.0, bins), persistent=False)

    @property
    def unit(self) -> Tensor:
        return self.edge / 5.0

    def forward(self, outputs: Tensor) -> Tensor:
        return outputs.softmax(-1) @ self.centers * self.edge

    def target(self, outputs: Tensor, reward: Tensor, discount: Tensor, cost: Tensor | None = None) -> Tensor:
        chosen = self.forward(outputs).argmin(0)
        probabilities = outputs[chosen, torch.arange(len(chosen), device=outputs.device)].softmax(-1)
        returns = (self.centers * self.edge).expand_as(probabilities)
        if cost is not None:
            returns = returns - cost[:, None]
        returns = torch.addcmul(reward[:, None], discount[:, None], returns) / self.edge
        return self.project(returns, probabilities)

    def project(self, returns: Tensor, probabilities: Tensor) -> Tensor:
        """Share probabilities [B, N] of returns [B, N], in units of the edge, out to the two nearest bins of each."""
        position = (returns.clamp(-1.0, 1.0) + 1.0) * (0.5 * (self.size - 1))
        below = position.floor().clamp(max=self.size - 2)
        upper = (position - below) * probabilities
        index = below.long()
        found = torch.zeros_like(probabilities).scatter_add(1, index, probabilities - upper)
        return found.scatter_add(1, index + 1, upper)

    def losses(self, outputs: Tensor, target: Tensor) -> Tensor:
        return -(target * outputs.log_softmax(-1)).sum(-1)

    def errors(self, outputs: Tensor, target: Tensor) -> Tensor:
        return target @ self.centers * self.edge - self.forward(outputs.detach())

    def follow(self, reward: Tensor, discount: Tensor) -> None:
        found = 2.0 * reward.abs().mean() / (1.0 - discount.max()).clamp(min=1e-3)
        self.edge.copy_(torch.maximum(self.edge, found))


_KINDS: Mapping[str, type[ScalarOutput]] = {
    "scalar": ScalarOutput,
    "quantile": QuantileOutput,
    "categorical": CategoricalOutput,
}


def read_critic_output(given: CriticOutputName) -> ScalarOutput:
    """Make the output of critics that a setting names; raises `ValueError` if that is not possible."""
    settings = dict[str, Any]() if isinstance(given, str) else dict(given)
    name = given if isinstance(given, str) else settings.pop("type", None)
    if name not in _KINDS:
        raise ValueError(f"critic_output {name!r} is unknown; use one of {', '.join(_KINDS)}")
    try:
        return _KINDS[name](**settings)
    except TypeError as error:
        raise ValueError(f"critic_output is {given!r}: {error}") from error
    except ValueError as error:
        raise ValueError(f"critic_output.{error}") from error


def quantile_huber_loss(quantiles: Tensor, target: Tensor, kappa: float = 1.0) -> Tensor:
    """Quantile regression with Huber's loss in place of the absolute error (Dabney et al. 2018, arXiv:1710.10044).

    The loss of a row is the sum over quantiles i of the mean over targets j of |tau_i - 1{u < 0}| L(u) / kappa, with
    u = target_j - quantile_i, tau_i = (i + 0.5) / N, and L Huber's loss, quadratic up to kappa (eq. 10).

    Args:
        quantiles: [B, N] float32; the gradient flows through it.
        target: [B, M] float32, without gradient.
        kappa: > 0; raising it makes quantiles more like means.

    Returns:
        [B] float32.
    """
    check_rank(2, quantiles=quantiles, target=target)
    error = target[:, None, :] - quantiles[:, :, None]
    number = quantiles.shape[1]
    tau = (torch.arange(number, device=quantiles.device, dtype=torch.float32) + 0.5) / number
    scale = (tau[:, None] - (error.detach() < 0.0).to(torch.float32)).abs()
    huber = huber_loss(error, torch.zeros_like(error), reduction="none", delta=kappa)
    return (scale * huber / kappa).mean(2).sum(1)
