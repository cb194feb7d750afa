"""Graphs of updates: a method marked as `one_graph` runs compiled as a whole, where that pays off.

    @one_graph
    def update(self, batch, generator):
        loss = ...
        self.step(loss)
        return {"loss": loss.detach()}

The first call with tensors of some shapes runs as it is. Its graph is recorded (`recording.py`), compiled by another
process (`graph_cache.py`), compared with the method itself, and replaces it from then on. What depends on anything but
tensors must be an argument: each combination of other arguments and of shapes has its own graph.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import torch
from torch import Tensor

from surreal.learner.stepping.graph_cache import BASE_COST_S, COST_PER_NODE_S, Compiling, Entry, GraphCache, digest
from surreal.learner.stepping.graph_run import (
    CallArguments,
    CompiledCall,
    GraphedLearner,
    is_close,
    plain_settings,
    sources,
)
from surreal.learner.stepping.recording import NotRecordableError, Snapshot, record
from surreal.learner.stepping.stepper import ParameterGroups

logger = logging.getLogger(__name__)

P = ParamSpec("P")
LearnerT = TypeVar("LearnerT", bound=GraphedLearner)

#: Graphs of one method, at most: further shapes and arguments run as they are.
_MAX_GRAPHS = 6
#: Calls that are measured before a decision; the first ones are slower than the rest.
_MEASURED_CALLS, _WARM_CALLS = 100, 20
#: Updates between two readings of metrics from which on these are rare.
_RARE = 10
#: Share of a method's time that a graph is expected to save.
_EXPECTED_SAVING = 0.5
#: Loading an entry of the cache, and comparing it, takes about as long, s.
_LOADING_S = 0.5
_POLL_S = 0.2


def one_graph(
    method: Callable[Concatenate[LearnerT, P], Mapping[str, Tensor]],
) -> Callable[Concatenate[LearnerT, P], Mapping[str, Tensor]]:
    """Mark a method of a learner that does an update, or a part of one, as one that may be compiled as a whole.

    It computes with tensors of its arguments and of the learner's state (the model, optimizers, and what was given to
    `keep`), calls `step`, and returns scalars and tensors by name. It reads no number of a tensor, and nothing of the
    learner that changes: that must be an argument. Random numbers come from generators among the arguments.
    """

    @functools.wraps(method)
    def call(self: LearnerT, *args: P.args, **kwargs: P.kwargs) -> Mapping[str, Tensor]:
        graphs: Graphs | None = self.graphs
        # Rare updates whose metrics are read are not worth another graph.
        if graphs is None or kwargs or (self.is_metrics_due and self.metrics_interval >= _RARE):
            return method(self, *args, **kwargs)
        return graphs.call(method, args)

    return call  # type: ignore[return-value]  # its arguments are the method's


class Graphs:
    """The graphs of a learner.

    Args:
        learner: learner whose methods they replace.
        groups: the learner's parameters.
        waits: compile at the first call, and wait for it; else alongside, where it pays off.

    Attributes:
        settings: what the learner was made with; see `note_settings`.
        seconds_left: how long the run continues, s; None where that is not known, and nothing is compiled alongside.
        keeps_waiting: called while the learner waits for a compiler; False ends the wait.
        running: number of graphs in use.
        cost_s: CPU seconds that compiling took, in all.
        saving_s: CPU seconds that graphs were expected to save, in all.
    """

    def __init__(self, learner: GraphedLearner, groups: ParameterGroups, *, waits: bool) -> None:
        self.waits = waits
        self.settings: Mapping[str, Any] = {}
        self.seconds_left: Callable[[], float | None] = lambda: None
        self.keeps_waiting: Callable[[], bool] = lambda: True
        self.running = 0
        self.cost_s = 0.0
        self.saving_s = 0.0
        self._learner = learner
        self._groups = groups
        self._cache: GraphCache | None = None
        self._variants: dict[Any, _Variant] = {}
        self._counts: dict[str, int] = {}
        self._started_s = time.perf_counter()

    def note_settings(self) -> None:
        """Take the learner's attributes that are plain values for settings: before its first update."""
        modules = dict(self._learner.model.named_modules())
        self.settings = {name: plain_settings(each) for name, each in [("learner", self._learner), *modules.items()]}

    def metrics(self) -> dict[str, float]:
        """Return the number of graphs in use, and what compiling took and was expected to save, CPU s."""
        return {
            "learner/graphs": float(self.running),
            "learner/compile_cpu_s_total": self.cost_s,
            "learner/compile_saving_s_total": self.saving_s,
        }

    def call(self, method: Callable[..., Mapping[str, Tensor]], args: Sequence[Any]) -> Mapping[str, Tensor]:
        """Call a method of the learner, or the graph in its place."""
        found = CallArguments()
        found.add(args)
        key = method.__name__, tuple(found.kinds)
        variant = self._variants.get(key)
        if variant is None:
            variant = self._variants[key] = self._new_variant(method)
        if variant.run is not None:
            if not variant.run.is_shown(self._learner.histograms):
                return variant.run(found.leaves, found.generators)
        elif variant.is_open:
            return self._prepare(variant, args, found)
        return method(self._learner, *args)

    def forget(self) -> None:
        """Begin again: the learner has other tensors."""
        self.close()
        self._variants.clear()
        self.running = 0
        self._counts.clear()

    def close(self) -> None:
        """End the processes that compile."""
        for variant in self._variants.values():
            if variant.compiling is not None:
                variant.compiling.close()
                variant.compiling = None

    def _new_variant(self, method: Callable[..., Mapping[str, Tensor]]) -> _Variant:
        count = self._counts[method.__name__] = self._counts.get(method.__name__, 0) + 1
        return _Variant(method, is_open=count <= _MAX_GRAPHS)

    def _prepare(self, variant: _Variant, args: Sequence[Any], found: CallArguments) -> Mapping[str, Tensor]:
        """Call a method whose graph is not there yet, and do what is next to get it."""
        try:
            entry = self._entry(variant, args, found)
            if entry is not None:
                variant.compiling = None
                return self._take(variant, entry, args, found)
        except (NotRecordableError, RuntimeError, OSError) as error:
            variant.is_open = False
            level = logging.WARNING if self.waits else logging.INFO
            name = variant.method.__name__
            logger.log(level, "%s.%s runs without a graph: %s", type(self._learner).__name__, name, error)
        began_s = time.perf_counter()
        result = variant.method(self._learner, *args)
        variant.calls += 1
        if variant.calls > _WARM_CALLS:
            variant.seconds += time.perf_counter() - began_s
        return result

    def _entry(self, variant: _Variant, args: Sequence[Any], found: CallArguments) -> Entry | None:
        """Return the graph, if it is there; start to make it, if that pays off."""
        if variant.compiling is not None:
            return self._compiled(variant.compiling)
        saving_s = float("inf") if self.waits else self._saving_s(variant)
        if saving_s < _LOADING_S:
            return None
        learner = self._learner
        self._cache = self._cache or GraphCache()
        name = digest(self._parts(variant, found))
        if (known := self._cache.get(name)) is not None:
            self.saving_s += 0.0 if self.waits else saving_s
            return known
        if saving_s < BASE_COST_S:
            return None
        state = self._state()
        call = functools.partial(variant.method, learner, *args)
        graph, interface = record(call, self._groups, state, found.leaves, found.generators)
        if saving_s < BASE_COST_S + COST_PER_NODE_S * len(graph.graph.nodes):
            return None
        draws = [torch.empty(draw.shape, device=learner.device) for draw in interface.draws]
        inputs = [*(state[each] for each in interface.state), *(found.leaves[i] for i in interface.leaves)]
        inputs += [draws[i] for i in interface.used_draws]
        variant.compiling = self._cache.begin(name, graph, interface, inputs, niceness=0 if self.waits else 10)
        self.saving_s += 0.0 if self.waits else saving_s
        return self._compiled(variant.compiling)

    def _compiled(self, compiling: Compiling) -> Entry | None:
        """Return what a process compiled; None if it is not done, and the learner does not wait for it."""
        while compiling.is_running:
            if not self.waits:
                return None
            if not self.keeps_waiting():
                compiling.close()
                raise RuntimeError("the run ended before it was compiled")
            time.sleep(_POLL_S)
        entry = compiling.result()
        self.cost_s += entry.cost_s
        return entry

    def _saving_s(self, variant: _Variant) -> float:
        """Return the CPU seconds that a graph is expected to save in the rest of the run; 0 before that is known."""
        if variant.calls < variant.next_look:
            return 0.0
        variant.next_look = 2 * variant.calls
        left_s = self.seconds_left()
        if left_s is None:
            return 0.0
        mean_s = variant.seconds / (variant.calls - _WARM_CALLS)
        share = min(1.0, mean_s * variant.calls / (time.perf_counter() - self._started_s))
        return left_s * share * _EXPECTED_SAVING

    def _state(self) -> dict[str, Tensor]:
        """Return all tensors that updates read and change, by name, each once."""
        found, seen = dict[str, Tensor](), set[int]()
        for name, tensor in self._learner.live_tensors():
            if tensor.numel() and id(tensor) not in seen:
                seen.add(id(tensor))
                found[name] = tensor
        return found

    def _parts(self, variant: _Variant, found: CallArguments) -> dict[str, Any]:
        """Return everything that decides what a graph computes."""
        learner = self._learner
        return {
            "learner": f"{type(learner).__module__}.{type(learner).__qualname__}.{variant.method.__name__}",
            "settings": {**self.settings, "groups": self._groups.described()},
            "model": [repr(learner.model), learner.model.header()],
            "state": {name: [str(each.dtype), list(each.shape)] for name, each in self._state().items()},
            "arguments": found.kinds,
            "device": str(learner.device),
            "sources": sources([type(learner), *map(type, learner.model.modules())]),
        }

    def _take(self, variant: _Variant, entry: Entry, args: Sequence[Any], found: CallArguments) -> Mapping[str, Tensor]:
        """Update by the graph, if it agrees with the method; later updates do the same.

        Raises:
            RuntimeError: the graph cannot be loaded, or gives something else.
        """
        state, learner = self._state(), self._learner
        run = CompiledCall(learner, self._groups, entry, state)
        run.show_rates()
        before = Snapshot(state, found.generators)
        expected = dict(variant.method(learner, *args))
        wanted = {name: tensor.detach().clone() for name, tensor in state.items()}
        before.restore()
        result = run(found.leaves, found.generators)
        pairs = [(name, wanted[name], state[name]) for name in state]
        pairs += [(name, expected[name].detach(), result[name]) for name in result]
        for name, theirs, ours in pairs:
            if not is_close(ours, theirs):
                before.restore()
                raise RuntimeError(f"its graph gives another {name}")
        variant.run = run
        self.running += 1
        logger.info("%s.%s runs as one graph", type(learner).__name__, variant.method.__name__)
        return result


class _Variant:
    """A method with some shapes and further arguments.

    Args:
        method: the method.
        is_open: whether it may still get a graph.
    """

    def __init__(self, method: Callable[..., Mapping[str, Tensor]], *, is_open: bool) -> None:
        self.method = method
        self.is_open = is_open
        self.run: CompiledCall | None = None
        self.compiling: Compiling | None = None
        self.calls = 0
        self.seconds = 0.0  # of the calls after the first ones
        self.next_look = _WARM_CALLS + _MEASURED_CALLS
