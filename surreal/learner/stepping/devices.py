"""Devices and compiling: where and how the networks of a learner run."""

from __future__ import annotations

import logging
from typing import Any, TypeVar, cast

import torch
from torch import nn

from surreal.base import tree
from surreal.base.pytorch import tensors_of
from surreal.base.types import Batch, TrajectoryBatch

B = TypeVar("B", bound=Batch | TrajectoryBatch)


def resolve_device(name: str) -> torch.device:
    """Turn `auto`, `cpu`, `cuda` or `cuda:1` into a device; `auto` takes a GPU if there is one.

    Raises:
        ValueError: the name is unknown, or there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"device is {name!r}; it must be auto, cpu or cuda")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"device is {name!r}, but this machine has {torch.cuda.device_count()} CUDA device(s); use auto"
        )
    return device


class BatchMover:
    """Moves batches to the learner's device; used by one thread.

    With a GPU, copies have their own stream: one from page-locked memory runs while the device still computes the
    update before, and only what uses the batch waits for it.

    Args:
        device: where the model is.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._copies: Any = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def __call__(self, batch: B) -> B:
        """Return the batch with its tensors on the device; tensors already on the device are not copied."""
        if self._copies is None:
            return batch_to(batch, self.device)
        computing = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self._copies):
            moved = batch_to(batch, self.device)
        computing.wait_stream(self._copies)
        for tensor in tensors_of(moved):
            if tensor.is_cuda:
                # Its memory belongs to the stream of the copies, which must not reuse it while it is computed with.
                tensor.record_stream(computing)
        return moved


def batch_to(batch: B, device: torch.device) -> B:
    """Move the tensors of a batch, of transitions or of trajectories; from pinned memory without waiting."""

    def to(leaf: Any) -> Any:
        return leaf.to(device, non_blocking=True) if isinstance(leaf, torch.Tensor) else leaf

    moved = {name: tree.map_leaves(to, value) for name, value in batch._asdict().items() if name != "sample_info"}
    return cast(B, batch._replace(**moved))


logger = logging.getLogger(__name__)


class NetworkCompiler:
    """Compiles networks when they are first called, and continues without where that fails, with one warning for all.

    It is calls of a network itself, `network(obs)`, that run compiled; calls of its `forward`, as agents make them, and
    copies of it do not.
    """

    def __init__(self) -> None:
        self.has_failed = False

    def compile(self, network: nn.Module) -> None:
        """Compile a network from its next call on."""
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
            logger.warning("torch.compile fails here, and learning continues without it: %s: %s", name, reason)
