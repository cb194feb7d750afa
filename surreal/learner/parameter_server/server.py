"""`ParameterServer`: steps down gradients that others computed, with a learner's own optimizers.

    server = ParameterServer(learner, combine="dc")
    while True:
        gradient = queue.take(timeout_s=0.5)
        if gradient is not None and server.step(gradient):
            version = broadcaster.broadcast(learner.model)
            server.published(version)

Clipping, schedules, the check for finite numbers and the state that checkpoints keep are the learner's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from torch import Tensor

from surreal.learner.gradients import GradientLearner


class PushedGradient(Protocol):
    """What a server needs of a gradient."""

    @property
    def tensors(self) -> Mapping[str, Mapping[str, Tensor]]:
        """By group and name."""

    @property
    def version(self) -> int:
        """Of the parameters it was computed with."""

    @property
    def global_step(self) -> int:
        """Env steps of the whole run when it was pushed."""


class ParameterServer:
    """Steps down gradients; used by one thread.

    Args:
        learner: whose parameters are moved; ready, or its model materialized.
        combine: fifo, each gradient is a step; avg, the mean of `num_gradients` is; or dc, as fifo, with each gradient
            corrected for the parameters having moved on since it was computed.
        num_gradients: of a mean, >= 1; raising it gives fewer and steadier steps.
        dc_lambda: of the correction, >= 0; raising it corrects more, 0 not at all.
        dc_history: updates for which published parameters are remembered, >= 1; raising it takes memory.
        names: `group/name` of the parameters that are this server's, of several; None: all of them.
        gather: exchanges bytes with the other servers (`ServerGroup.gather`); needed with `names`.
    """

    def __init__(
        self,
        learner: GradientLearner,
        *,
        combine: str = "fifo",
        num_gradients: int = 4,
        dc_lambda: float = 0.05,
        dc_history: int = 20,
        names: Collection[str] | None = None,
        gather: Callable[[bytes], list[bytes]] | None = None,
    ) -> None:
        raise NotImplementedError

    def step(self, gradient: PushedGradient) -> bool:
        """Take a gradient; returns whether it led to an update.

        Raises:
            DivergedError: gradients are not finite again and again.
        """
        raise NotImplementedError

    def published(self, version: int) -> None:
        """Tell under which version the parameters, as they are now, were published."""
        raise NotImplementedError

    def published_names(self) -> frozenset[str]:
        """Names in the model's `tensors()` that this server publishes: all, or those of its part."""
        raise NotImplementedError

    def reset(self) -> None:
        """Forget gradients that wait for others, and former parameters: after another state was restored."""
        raise NotImplementedError

    def metrics(self) -> dict[str, float]:
        """The learner's, and how stale gradients are when they are applied."""
        raise NotImplementedError
