"""How many threads a learner's process computes with: `learner.threads`."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch

from surreal.base.system.process import count_cores
from surreal.config.schema.learning import LearnerConfig


def set_torch_threads(learner: LearnerConfig, variables: Mapping[str, str] = os.environ) -> None:
    """Have torch compute with so many threads, if the configuration says how many; for the thread that learns.

    Args:
        learner: its settings.
        variables: of the environment; torchrun says there how many ranks share this machine.
    """
    if learner.threads == "all":
        ranks_here = int(variables.get("LOCAL_WORLD_SIZE", learner.ranks))
        torch.set_num_threads(max(1, count_cores() // ranks_here))
    elif learner.threads is not None:
        torch.set_num_threads(learner.threads)
