"""`NetworkCompiler`: torch.compile for the networks of a learner, and life without it."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn

logger = logging.getLogger(__name__)


class NetworkCompiler:
    """Has networks compiled when they are first called, and goes on without where that fails, with one warning for all.

    It is calls of a network itself, `network(obs)`, that run compiled; calls of its `forward`, as agents make them, and
    copies of it do not.
    """

    def __init__(self) -> None:
        self.has_failed = False

    def compile(self, network: nn.Module) -> None:
        """Let a network run compiled from its next call on."""
        plain: Any = network._call_impl
        try:
            compiled: Any = torch.compile(plain)
        except Exception as error:
            self._give_up(error)
            return

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.has_failed:
                return plain(*args, **kwargs)
            try:
                return compiled(*args, **kwargs)
            except Exception as error:
                found = plain(*args, **kwargs)  # which raises what is wrong with the arguments
                self._give_up(error)
                return found

        network._compiled_call_impl = call

    def _give_up(self, error: Exception) -> None:
        if not self.has_failed:
            self.has_failed = True
            reason = str(error).strip().partition("\n")[0]
            name = type(error).__name__
            logger.warning("torch.compile fails here, and learning goes on without it: %s: %s", name, reason)
