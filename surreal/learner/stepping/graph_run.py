"""Running a graph: the tensors that it reads, the arguments of a call, and a compiled graph in place of a method."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from surreal.base.contracts import Kept
from surreal.base.pytorch import Module
from surreal.learner.stepping.graph_cache import Compiling, Entry
from surreal.learner.stepping.optimizers import Optimizer
from surreal.learner.stepping.reports import Histograms
from surreal.learner.stepping.stepper import ParameterGroups
from surreal.model import Distribution


class GraphedLearner(Protocol):
    """Parts of a `GradientLearner` that graphs need."""

    device: torch.device
    histograms: Histograms

    @property
    def model(self) -> Module: ...
    @property
    def kept(self) -> Mapping[str, Kept]: ...


#: Largest difference between a graph's tensors and the method's, relative to the largest number of each.
_TOLERANCE = 1e-3
#: Calls that are measured before a decision; the first ones are slower than the rest.
MEASURED_CALLS, WARM_CALLS = 100, 20
#: Attributes of learners and models that are counts.
_CHANGING = ("updates", "_global_step", "is_ready", "version", "failure", "training", "clip_range")
#: Settings of a learner that no graph depends on.
_UNRELATED = ("_seed", "max_global_step", "_schedule_step", "metrics_interval", "_may_compile")
#: A tuple takes a third of the time of a union.
_PLAIN = (bool, int, float, str)


class CompiledCall:
    """Runs a graph; raises `RuntimeError` if it cannot be loaded."""

    def __init__(
        self, learner: GraphedLearner, groups: ParameterGroups, entry: Entry, state: Mapping[str, Tensor]
    ) -> None:
        interface = entry.interface
        self._graph = entry.load(learner.device)
        self._lock = learner.model.lock
        self._groups = groups
        self._state = [state[name].detach() for name in interface.state]
        self._mutated = [state[name] for name in interface.mutated]
        self._leaves = interface.leaves
        self._draws = [(draw, torch.empty(draw.shape, device=learner.device)) for draw in interface.draws]
        self._used = [self._draws[i][1] for i in interface.used_draws]
        self._outputs, self._norms = interface.outputs, interface.norms
        self._stepped = list(dict.fromkeys(interface.norms))

    def __call__(self, leaves: Sequence[Tensor], generators: Sequence[torch.Generator]) -> dict[str, Tensor]:
        """Compute what the method computes, and change what it changes."""
        self.show_rates()
        for draw, tensor in self._draws:
            draw.into(tensor, generators[draw.generator])
        inputs = [*self._state, *[leaves[i] for i in self._leaves], *self._used]
        with self._lock:
            found = self._graph(inputs)
            torch.autograd.graph.increment_version(self._mutated)
        for group, norm in zip(self._norms, found[len(self._outputs) :], strict=True):
            self._groups.note(group, norm)
        return dict(zip(self._outputs, found, strict=False))

    def is_shown(self, histograms: Histograms) -> bool:
        """Whether histograms want to see this call, for which it cannot be a graph."""
        return histograms.is_due or any(map(histograms.wants_gradients, self._stepped))

    def show_rates(self) -> None:
        for group in self._stepped:
            self._groups.anneal(group)
            self._groups.optimizers[group].show_rate()


class Variant:
    """A method with some shapes and further arguments."""

    def __init__(self, method: Callable[..., Mapping[str, Tensor]]) -> None:
        self.method = method
        self.is_open = True  # it may still get a graph
        self.run: CompiledCall | None = None
        self.compiling: Compiling | None = None
        self.calls = 0
        self.seconds = 0.0  # of the calls after the first ones
        self.next_look = WARM_CALLS + MEASURED_CALLS
        self.nodes = 0  # of its graph; 0 before it was recorded
        self.is_tried = False
        self.tried: tuple[list[float], list[float]] = [], []  # seconds of calls by the method, and by the graph


def live_tensors(learner: GraphedLearner) -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors that updates read and change, by name; an update changes them in place."""
    for name, part in (("model", learner.model), *learner.kept.items()):
        found: Iterable[tuple[str, Tensor]] = ()
        if isinstance(part, Optimizer):
            found = part.live_tensors().items()
        elif isinstance(part, nn.Module):
            found = (*part.named_parameters(), *part.named_buffers())
        yield from ((f"{name}/{key}", tensor) for key, tensor in found)


class CallArguments:
    """The tensors and generators of some arguments, in order, and what else there is to tell them apart."""

    def __init__(self) -> None:
        self.leaves: list[Tensor] = []
        self.generators: list[torch.Generator] = []
        self.kinds: list[Any] = []
        self._places: dict[int, int] = {}

    def add(self, value: Any) -> None:
        """Add an argument, or a part of one; arrays are left out, because no graph reads them."""
        if isinstance(value, Tensor):
            place = self._places.setdefault(id(value), len(self.leaves))  # the same tensor may come twice
            self.leaves.append(value)
            self.kinds.append((value.dtype, value.shape, value.stride(), place))
        elif value is None or isinstance(value, _PLAIN):
            self.kinds.append((type(value), value))
        elif isinstance(value, (tuple, list)):
            self.kinds.append(len(value))
            for each in value:
                self.add(each)
        elif isinstance(value, np.ndarray):
            pass
        elif isinstance(value, dict):
            for name, each in value.items():
                self.kinds.append(name)
                self.add(each)
        elif isinstance(value, torch.Generator):
            self.generators.append(value)
        elif isinstance(value, Distribution):
            self.kinds.append(type(value))
            self.add(vars(value))
        else:
            self.kinds.append(repr(value))


def is_close(ours: Tensor, theirs: Tensor) -> bool:
    """Whether two tensors are the same, up to the order of sums; also where both have numbers that are not finite."""
    if not ours.is_floating_point():
        return torch.equal(ours, theirs)
    both = ours.isfinite() & theirs.isfinite()
    if not torch.equal(ours.isfinite(), theirs.isfinite()):
        return False
    ours, theirs = ours[both].double(), theirs[both].double()
    return not len(ours) or bool((ours - theirs).abs().max() <= _TOLERANCE * theirs.abs().max() + 1e-6)


def plain_settings(owner: object) -> dict[str, Any]:
    """Return the attributes of an object that are numbers, texts, truth values, None, lists or dataclasses."""
    return {
        name: repr(value) if is_dataclass(value) else value
        for name, value in vars(owner).items()
        if name not in _CHANGING + _UNRELATED and _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, _PLAIN) or is_dataclass(value)


@functools.lru_cache(maxsize=1)
def _own_sources() -> list[str]:
    package = Path(__file__).parents[2]
    return [str(path) for folder in ("learner", "model", "base") for path in sorted((package / folder).rglob("*.py"))]


@functools.lru_cache(maxsize=1024)
def _digest_of(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def sources(classes: Sequence[type]) -> dict[str, str]:
    """Return digests of the files of these classes, of their bases, and of what updates compute with."""
    found = {path: _digest_of(path) for path in _own_sources()}
    for cls in {base for each in classes for base in each.__mro__}:
        if not cls.__module__.startswith(("torch.", "surreal.", "builtins", "abc", "typing")):
            try:
                path = inspect.getfile(cls)
            except (TypeError, OSError):
                found[cls.__qualname__] = "unknown"
            else:
                found[path] = _digest_of(path)
    return dict(sorted(found.items()))
