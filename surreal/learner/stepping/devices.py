"""Devices: where the networks of a learner run and how they multiply there, and transfers between devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from numpy.typing import NDArray
from torch import Tensor

from surreal.base import tree
from surreal.base.pytorch import move_tensor, tensors_of
from surreal.base.types import Batch, TrajectoryBatch

B = TypeVar("B", bound=Batch | TrajectoryBatch)

#: Entries of the smallest matrix for which oneDNN is faster than MKL, whose calls cost less.
_WIDE = 128 * 128


def available_devices() -> list[str]:
    """List the devices that torch can use on this machine, such as `["cpu", "cuda:0"]`."""
    gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    return ["cpu", *gpus, *(["mps"] if torch.backends.mps.is_available() else [])]


def resolve_device(name: str) -> torch.device:
    """Turn `auto`, `cpu`, `cuda`, `cuda:1` or `mps` into a device; `auto` is CUDA if torch can use it, else the CPU.
    Raises `ValueError` if the name is unknown, or there is no such device here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    here = available_devices()
    if ("cuda:0" if name == "cuda" else name) not in here:
        raise ValueError(f"device is {name!r}, but torch has only {' and '.join(here)} here; use one of these")
    return torch.device(name)


def multiplication_of(
    parameters: Iterable[Tensor], cpu: Path = Path("/proc/cpuinfo")
) -> Callable[[], AbstractContextManager[None]]:
    """Return how an update of these parameters multiplies: `onednn` for wide layers on AMD's CPUs with AVX-512."""
    is_wide = any(each.dim() == 2 and each.numel() >= _WIDE and each.device.type == "cpu" for each in parameters)
    has_halves = torch.backends.cpu.get_cpu_capability() == "AVX512" and cpu.exists() and "AMD" in cpu.read_text()
    return onednn if is_wide and has_halves and _is_onednn_exact() else nullcontext


@contextmanager
def onednn() -> Iterator[None]:
    """Multiply float32 matrices with oneDNN: MKL, torch's default, uses half of the vector units of AMD's CPUs."""
    # This permits bfloat16, which oneDNN uses only with AMX.
    products = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before, products.fp32_precision = products.fp32_precision, "bf16"
    try:
        yield
    finally:
        products.fp32_precision = before


@cache
def _is_onednn_exact() -> bool:
    rows = torch.linspace(0.0, 1000.0, 256 * 256).sin().reshape(256, 256)
    with onednn():
        product = rows @ rows
    return torch.allclose(product.double(), rows.double() @ rows.double(), rtol=1e-5, atol=1e-4)


class BatchMover:
    """Moves batches to the learner's device; used by one thread.

    With a GPU, copies have their own stream: one from page-locked memory runs while the device still computes the
    update before, and only what uses the batch waits for it.
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
        return move_tensor(leaf, device) if isinstance(leaf, torch.Tensor) else leaf

    moved = {name: tree.map_leaves(to, value) for name, value in batch._asdict().items() if name != "sample_info"}
    return cast(B, batch._replace(**moved))


class Readback:
    """Brings numbers of an update back from the learner's device; used by one thread.

    From CUDA, they arrive when the next update brings its own, so that no update waits for its own kernels: while this
    thread waits for those of the update before, the device has work.
    """

    def __init__(self, device: torch.device) -> None:
        self._is_late = device.type == "cuda"
        self._pending: tuple[Callable[[NDArray[Any]], object], Tensor, Any] | None = None

    def bring(self, values: Tensor, use: Callable[[NDArray[Any]], object]) -> None:
        """Call `use` with the values: at once, or from CUDA with the next call of this method or of `flush`."""
        if not self._is_late or torch.are_deterministic_algorithms_enabled():  # their order is part of the result
            use(values.cpu().numpy())
            return
        copied, event = self._begin(values)
        self.flush()
        self._pending = use, copied, event

    def flush(self) -> None:
        """Wait for the transfers in progress, and return their results."""
        pending, self._pending = self._pending, None
        if pending is not None:
            use, copied, event = pending
            event.synchronize()
            use(copied.numpy())

    def _begin(self, values: Tensor) -> tuple[Tensor, Any]:
        """Begin a copy into page-locked memory; returns it, and the event of its end."""
        copied = torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(values, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(values.device))
        return copied, event
