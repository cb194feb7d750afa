"""`Module`: a torch module whose parameters another thread may replace while it is used; helpers for tensors.

A listener thread may replace the parameters of an agent's model at any time. Both threads hold the model's `lock`, so
a forward pass uses parameters of one known version:

    with model.lock, torch.inference_mode():
        q = model(obs)
        version = model.version
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from surreal.base import tree
from surreal.base.errors import ContractError
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs


class _Thread(threading.local):
    """State of each thread."""

    is_recording = False


_thread = _Thread()


@contextmanager
def recording() -> Iterator[None]:
    """Tell this thread's code that its operations are recorded as a graph: it must not read values, nor keep any."""
    before, _thread.is_recording = _thread.is_recording, True
    try:
        yield
    finally:
        _thread.is_recording = before


def is_recording() -> bool:
    """Whether this thread's operations are recorded as a graph."""
    return _thread.is_recording


class Module(nn.Module):
    """A torch module with a `lock`, a parameter version, and parameters as named tensors.

    The lock is held during a forward pass of an agent and while parameters are replaced; it is reentrant.
    """

    device_probe: Tensor
    state_shape: tuple[int, ...] | None = None  #: shape of one environment's recurrent state; None without one
    failure: Exception | None = None  #: why the parameters can no longer be updated, else None; see `fail`

    def __init__(self) -> None:
        super().__init__()
        self._make_lock()
        self.version = 0  #: of the parameters, 0 before the first replacement; read and written under `lock`
        # It moves with the module, also before there are parameters.
        self.register_buffer("device_probe", torch.empty(0), persistent=False)
        self._note_device()

    @property
    def scales_rewards(self) -> bool:
        """Whether learners divide rewards by the spread of returns (`return_filter`), which agents must then record."""
        return getattr(self, "return_filter", None) is not None

    @property
    def is_materialized(self) -> bool:
        """Whether all parameters exist; False in models that do not know the observation's shape yet."""
        return True

    def materialize(self, obs_spec: ObsSpec) -> None:
        """Create the parameters for these observations, unless they exist."""

    def header(self) -> dict[str, Any]:
        """Return the plain data that another process needs to create the parameters."""
        return {}

    def materialize_from(self, header: Mapping[str, Any]) -> None:
        """Create the parameters from a `header`, unless they exist."""

    def tensors(self) -> dict[str, Tensor]:
        """Return all parameters and persistent buffers by name, not copied; raises `ValueError` if there are none yet.

        To keep them while the module learns, clone them under `lock`.
        """
        self._require_materialized()
        return {name: tensor.detach() for name, tensor in self.state_dict().items()}

    def parameter_contract(self) -> dict[str, dict[str, Any]]:
        """Describe `tensors` as plain data, `{name: {"shape": [64, 4], "dtype": "float32"}}`."""
        return describe_tensors(self.tensors())

    def load_tensors(
        self,
        tensors: Mapping[str, Tensor],
        version: int | None = None,
        header: Mapping[str, Any] | None = None,
        *,
        in_place: bool = True,
    ) -> None:
        """Replace all parameters by copies of `tensors`, under `lock`; raises `ContractError` if they do not fit.

        Args:
            tensors: by name, shaped and typed as `tensors()`; on any device.
            version: new value of `version`; None leaves it.
            header: published with the tensors; a module without parameters creates them from it.
            in_place: False: `tensors` themselves become the parameters, so that no forward pass waits for a copy.
        """
        if not self.is_on_cpu:  # before the lock: agents may act until the values are on their device
            tensors = {name: tensor.to(self.device) for name, tensor in tensors.items()}
        # Parameters that are made in inference mode cannot be trained.
        with self.lock, torch.inference_mode(False), torch.no_grad():
            if not self.is_materialized:
                # Try a copy first: parameters that do not fit must not decide this module's shapes.
                trial = copy.deepcopy(self)
                trial.materialize_from(header or {})
                _check_same(describe_tensors(tensors), trial.parameter_contract())
                self.materialize_from(header or {})
            mine = self.tensors()
            if not _fit(tensors, mine):
                _check_same(describe_tensors(tensors), describe_tensors(mine))
            if in_place:
                torch._foreach_copy_(list(mine.values()), [tensors[name] for name in mine])
            for name, own in () if in_place else self.state_dict(keep_vars=True).items():
                own.data = tensors[name]
            if version is not None:
                self.version = version
                self._changed.notify_all()

    def fail(self, error: Exception | None) -> None:
        """Make agents that act with this module raise `error`; None clears it. Any thread may call it.

        A listener's thread calls it when it ends, so that no agent continues with parameters that are never replaced.
        """
        with self.lock:
            self.failure = error
            self._changed.notify_all()

    def wait_for_version(self, version: int, timeout_s: float) -> bool:
        """Wait at most `timeout_s` for parameters of this version or a later one; returns whether they came."""
        with self.lock:
            self._changed.wait_for(lambda: self.version >= version or self.failure is not None, timeout_s)
            return self.version >= version

    def _require_materialized(self) -> None:
        if not self.is_materialized:
            problem = f"{type(self).__name__} has no parameters yet, because it does not know the observation's shape"
            raise ValueError(f"{problem}; give it obs_spec, call materialize(obs_spec), or compute a batch first")

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        # Every move of a module ends here. Reading the probe in every step of an agent would cost a microsecond.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._note_device()
        return self

    def _note_device(self) -> None:
        self.device = self.device_probe.device  #: of the parameters
        self.is_on_cpu = self.device.type == "cpu"

    def __getstate__(self) -> dict[str, Any]:
        # A copy of the module, such as a target network, gets its own lock and its own compiled call.
        own = ("lock", "_changed", "_compiled_call_impl")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._make_lock()

    def _make_lock(self) -> None:
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)


def describe_tensors(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Any]]:
    """Return shape and dtype of each tensor as plain data."""
    return {
        name: {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
        for name, tensor in tensors.items()
    }


def to_tensors(obs: Obs, device: torch.device | None = None) -> Any:
    """Turn an observation of arrays, numbers, or nested dicts and tuples of them into tensors of the same nesting.

    Args:
        obs: may hold tensors, and arrays of objects, which stay unchanged.
        device: device of the tensors; None is the CPU, where they share memory with the arrays.
    """
    if isinstance(obs, np.ndarray):  # the usual case, in every step of an agent
        return _to_tensor(obs, device)
    return tree.map_leaves(lambda leaf: _to_tensor(leaf, device), obs)


def to_array(column: Any) -> NDArray[Any]:
    """Turn a tensor on any device, an array or numbers into an array."""
    if isinstance(column, np.ndarray):
        return column
    if isinstance(column, Tensor):
        return column.detach().cpu().numpy()
    return np.asarray(column)


def _to_tensor(leaf: Any, device: torch.device | None) -> Any:
    if isinstance(leaf, Tensor):
        return leaf if device is None else move_tensor(leaf, device)
    array = np.asarray(leaf)
    if array.dtype.hasobject:
        return array
    flags = array.flags
    # torch supports neither read-only memory nor negative strides.
    tensor = torch.from_numpy(array if flags.c_contiguous and flags.writeable else np.array(array, order="C"))
    return tensor if device is None else move_tensor(tensor, device)


def move_tensor(tensor: Tensor, device: torch.device) -> Tensor:
    """Move a tensor: from page-locked memory to CUDA without waiting, and to MPS, which has no float64, as float32."""
    if device.type == "mps" and tensor.dtype == torch.float64:
        tensor = tensor.to(torch.float32)
    return tensor.to(device, non_blocking=device.type == "cuda")


def _fit(theirs: Mapping[str, Tensor], ours: Mapping[str, Tensor]) -> bool:
    return theirs.keys() == ours.keys() and all(
        theirs[name].shape == tensor.shape and theirs[name].dtype == tensor.dtype for name, tensor in ours.items()
    )


def _check_same(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    if theirs == ours:
        return
    names = list(dict.fromkeys((*ours, *theirs)))
    diff = tuple(
        f"{name}: {_describe(theirs.get(name))} -> {_describe(ours.get(name))}"
        for name in names
        if theirs.get(name) != ours.get(name)
    )
    shown = "; ".join(diff[:3]) + (f"; and {len(diff) - 3} more" if len(diff) > 3 else "")
    raise ContractError(f"the parameters do not fit this model (given -> model): {shown}", diff=diff)


def _describe(entry: Mapping[str, Any] | None) -> str:
    return "missing" if entry is None else f"{entry['dtype']}{entry['shape']}"


def name_not_finite(tensors: Mapping[str, Tensor]) -> str:
    """Name the first tensor that holds nan or an infinity; "" if all are finite. Waits for the device."""
    for name, tensor in tensors.items():
        # A norm takes a fifth of the time, but may overflow although each number is finite.
        if tensor.is_floating_point() and not (
            math.isfinite(torch.linalg.vector_norm(tensor)) or tensor.isfinite().all()
        ):
            return name
    return ""


def tensors_of(batch: Any) -> list[Tensor]:
    """List all tensors of a batch, or of an observation."""
    return [leaf for leaf in tree.leaves(batch) if isinstance(leaf, Tensor)]


def check_rank(rank: int, **tensors: Tensor) -> None:
    """Refuse tensors of another rank, which would broadcast into a wrong loss without any error."""
    for name, tensor in tensors.items():
        if tensor.ndim != rank:
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}; it must have {rank} dimension(s)")
