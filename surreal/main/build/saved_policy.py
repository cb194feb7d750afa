"""A saved policy: the evaluation's `best.safetensors`, or what a learner's whole checkpoint holds of it.

Read by `surreal play`, by the check after a run, and by whoever starts from `checkpoint.restore`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from surreal.checkpoint import Checkpoint, open_checkpoint
from surreal.config import Config
from surreal.config.checking.problems import explain
from surreal.errors import CheckpointError

_KINDS = ("policy", "learner")
_MODEL_PREFIX = "model/"


@dataclass(frozen=True)
class Policy:
    """A policy file's content."""

    config: Config
    tensors: dict[str, Any]
    header: dict[str, Any]  #: of the model, see `surreal.utils.pytorch.Module`
    version: int


def load_policy(path: str | Path) -> Policy:
    """Read a policy, or the policy in a learner's checkpoint.

    Raises:
        CheckpointError: the file is missing, damaged, or neither of the two.
    """
    checkpoint = open_checkpoint(path)
    tensors = policy_tensors(checkpoint)
    plain = checkpoint.metadata.get("config")
    if not isinstance(plain, dict):
        raise CheckpointError(f"{path} has no configuration, so nobody knows what to play it with")
    try:
        config = Config.model_validate(plain)
    except ValidationError as error:
        problem = explain(Config, error, {}, "")
        raise CheckpointError(f"{path} has a configuration that this Surreal cannot read: {problem}") from error
    return Policy(config, tensors, policy_header(checkpoint), int(checkpoint.metadata.get("version", 0)))


def policy_tensors(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Give the model's parameters in a checkpoint of either kind.

    Raises:
        CheckpointError: it is neither a policy nor a learner's checkpoint.
    """
    kind = checkpoint.metadata.get("kind")
    if kind not in _KINDS:
        raise CheckpointError(f"{checkpoint.path} is neither a policy nor a learner's checkpoint of Surreal")
    if kind == "policy":
        return checkpoint.tensors
    return {
        name.removeprefix(_MODEL_PREFIX): tensor
        for name, tensor in checkpoint.tensors.items()
        if name.startswith(_MODEL_PREFIX)
    }


def policy_header(checkpoint: Checkpoint) -> dict[str, Any]:
    """Give the model's header in a checkpoint of either kind, {} if it has none."""
    metadata = checkpoint.metadata
    holder = metadata.get("state") if metadata.get("kind") == "learner" else metadata
    header = holder.get("model") if isinstance(holder, dict) else None
    return header if isinstance(header, dict) else {}
