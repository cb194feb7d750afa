"""`RemoteLearner`: agents learn, by calling methods of its model; RELAAX's parameter server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from surreal.distributed.calls import remote_methods
from surreal.learner.base import Learner


class RemoteLearner(Learner):
    """Keeps, publishes and saves a model that agents change by calling its methods.

    Methods of the model that are marked as `surreal.distributed.remote` (RELAAX's `Op`) can be called by their names,
    those of its parts by dotted names: `policy.NAME`. The experience that agents send is counted and nothing else, so
    each batch is the moment at which the parameters are published and checkpoints are due.

    Args:
        model: the model that agents share.
    """

    def remote_methods(self) -> Mapping[str, Callable[..., Any]]:
        """Methods that agents may call, by name."""
        named = remote_methods(self.model)
        for part, module in self.model.named_children():
            named |= {f"{part}.{name}": method for name, method in remote_methods(module).items()}
        return {**remote_methods(self), **named}

    def learn(self, i: int, batch: Any) -> Mapping[str, Tensor | float]:
        """Learn nothing: the agents do."""
        return {}
