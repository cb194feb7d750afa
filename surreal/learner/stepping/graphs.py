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
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from surreal.learner.stepping.graph_cache import BASE_COST_S, COST_PER_NODE_S, Compiling, Entry, GraphCache, digest
from surreal.learner.stepping.graph_run import (
    WARM_CALLS,
    CallArguments,
    CompiledCall,
    GraphedLearner,
    Variant,
    is_close,
    live_tensors,
    plain_settings,
    sources,
)
from surreal.learner.stepping.recording import NotRecordableError, Snapshot, record
from surreal.learner.stepping.stepper import ParameterGroups

logger = logging.getLogger(__name__)

#: Graphs of one method, at most: further shapes and arguments run as they are.
_MAX_GRAPHS = 6
#: Time that a graph saves for each operation, s, and the largest share of a method's time that it saves, about.
_SAVING_PER_NODE_S, _LARGEST_SAVING = 3e-6, 0.8
#: Calls of method and graph each, in turn, that decide which of them is used.
_TRIED_CALLS = 20
#: Share of a method's time that a graph may take.
_WORTHWHILE = 0.95
#: Loading an entry of the cache, and comparing it, takes about as long, s.
_LOADING_S = 0.5
_POLL_S = 0.2


class Graphs:
    """The graphs of a learner.

    Args:
        seconds_left: predicts how long the run continues, s, to compile alongside where that pays off; None compiles
            at the first call, and waits for it.
    """

    def __init__(
        self, learner: GraphedLearner, groups: ParameterGroups, seconds_left: Callable[[], float] | None = None
    ) -> None:
        self.waits = seconds_left is None  #: whether it compiles at the first call
        self.settings: Mapping[str, Any] = {}  #: what the learner was made with; see `note_settings`
        #: called while the learner waits for a compiler; False ends the wait
        self.keeps_waiting: Callable[[], bool] = lambda: True
        self.running = 0  #: number of graphs in use
        self.cost_s = 0.0  #: CPU seconds that compiling took, in all
        self.saving_s = 0.0  #: CPU seconds that graphs were expected to save, in all
        self._learner = learner
        self._groups = groups
        self._seconds_left = seconds_left or (lambda: math.inf)
        self._cache: GraphCache | None = None
        self._variants: dict[Any, Variant] = {}
        self._counts: Counter[Any] = Counter()
        self._is_calling = False
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
        if self._is_calling:  # a marked method calls another one, or the one that it overrides: both are one graph
            return method(self._learner, *args)
        self._is_calling = True
        try:
            return self._call(method, args)
        finally:
            self._is_calling = False

    def _call(self, method: Callable[..., Mapping[str, Tensor]], args: Sequence[Any]) -> Mapping[str, Tensor]:
        found = CallArguments()
        found.add(args)
        key = method, tuple(found.kinds)
        variant = self._variants.get(key)
        if variant is None:
            if self._counts[method] == _MAX_GRAPHS:
                return method(self._learner, *args)
            self._counts[method] += 1
            variant = self._variants[key] = Variant(method)
        if variant.run is not None:
            if not variant.run.is_shown(self._learner.histograms):
                if variant.is_tried:
                    return variant.run(found.leaves, found.generators)
                return self._try(variant, variant.run, args, found)
        elif variant.is_open:
            return self._prepare(variant, args, found)
        return method(self._learner, *args)

    def changed_setting(self) -> str | None:
        """Return the name of a plain attribute of the learner that has changed, so that no graph fits it."""
        now = plain_settings(self._learner)
        known = self.settings.get("learner", now)
        return next((name for name, value in known.items() if name in now and now[name] != value), None)

    def forget(self) -> None:
        """Begin again: the learner has other tensors."""
        self.close()
        self._variants.clear()
        self.running = 0
        self._counts.clear()

    def close(self) -> None:
        for variant in self._variants.values():
            if variant.compiling is not None:
                variant.compiling.close()
                variant.compiling = None

    def _prepare(self, variant: Variant, args: Sequence[Any], found: CallArguments) -> Mapping[str, Tensor]:
        """Call a method whose graph is not there yet, and do what is next to get it."""
        try:
            entry = self._entry(variant, args, found)
            if entry is not None:
                variant.compiling = None
                return self._take(variant, entry, args, found)
        except (NotRecordableError, RuntimeError, OSError) as error:
            variant.is_open, variant.compiling = False, None
            level = logging.WARNING if self.waits else logging.INFO
            name = variant.method.__name__
            logger.log(level, "%s.%s runs without a graph: %s", type(self._learner).__name__, name, error)
        began_s = time.perf_counter()
        result = variant.method(self._learner, *args)
        variant.calls += 1
        if variant.calls > WARM_CALLS:
            variant.seconds += time.perf_counter() - began_s
        return result

    def _entry(self, variant: Variant, args: Sequence[Any], found: CallArguments) -> Entry | None:
        """Return the graph, if it is there; start to make it, if that pays off."""
        if variant.compiling is not None:
            return self._compiled(variant.compiling)
        saving_s = math.inf
        if not self.waits:
            if variant.calls < variant.next_look:
                return None
            variant.next_look = 2 * variant.calls
            saving_s = self._saving_s(variant)
            if saving_s < _LOADING_S:
                return None
        learner = self._learner
        self._cache = self._cache or GraphCache()
        name = digest(self._parts(variant, found))
        if (known := self._cache.get(name)) is not None:
            self.saving_s += 0.0 if self.waits else saving_s
            return known
        if saving_s < BASE_COST_S + COST_PER_NODE_S * variant.nodes:
            return None
        state = self._state()
        call = functools.partial(variant.method, learner, *args)
        with learner.model.lock:
            graph, interface = record(call, self._groups, state, found.leaves, found.generators)
        variant.nodes = len(graph.graph.nodes)
        if not self.waits:
            saving_s = self._saving_s(variant)
            if saving_s < BASE_COST_S + COST_PER_NODE_S * variant.nodes:
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

    def _saving_s(self, variant: Variant) -> float:
        """Return the CPU seconds that a graph is expected to save in the rest of the run."""
        mean_s = variant.seconds / (variant.calls - WARM_CALLS)
        saved_s = _LARGEST_SAVING * mean_s
        if variant.nodes:
            saved_s = min(saved_s, _SAVING_PER_NODE_S * variant.nodes)
        calls_per_s = min(1.0 / mean_s, variant.calls / (time.perf_counter() - self._started_s))
        return self._seconds_left() * calls_per_s * saved_s

    def _state(self) -> dict[str, Tensor]:
        """Return all tensors that updates read and change, by name, each once."""
        found, seen = dict[str, Tensor](), set[int]()
        for name, tensor in live_tensors(self._learner):
            if tensor.numel() and id(tensor) not in seen:
                seen.add(id(tensor))
                found[name] = tensor
        return found

    def _parts(self, variant: Variant, found: CallArguments) -> dict[str, Any]:
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

    def _take(self, variant: Variant, entry: Entry, args: Sequence[Any], found: CallArguments) -> Mapping[str, Tensor]:
        """Update by the graph now and later; raises `RuntimeError` if it does not agree with the method."""
        state, learner = self._state(), self._learner
        run = CompiledCall(learner, self._groups, entry, state)
        run.show_rates()
        with learner.model.lock:
            before = Snapshot(state, found.generators)
            expected = dict(variant.method(learner, *args))
            wanted = {name: tensor.detach().clone() for name, tensor in state.items()}
            before.restore()
            try:
                result = run(found.leaves, found.generators)
                pairs = [(name, wanted[name], state[name]) for name in state]
                pairs += [(name, expected[name].detach(), result[name]) for name in result]
                for name, theirs, ours in pairs:
                    if not is_close(ours, theirs):
                        raise RuntimeError(f"its graph gives another {name}")
            except RuntimeError:
                before.restore()
                raise
        variant.run = run
        self.running += 1
        variant.is_tried = self.waits
        logger.info("%s.%s runs as one graph", type(learner).__name__, variant.method.__name__)
        return result

    def _try(
        self, variant: Variant, run: CompiledCall, args: Sequence[Any], found: CallArguments
    ) -> Mapping[str, Tensor]:
        """Call the method, or the graph in its place, in turn; after some calls, only the faster one is left."""
        by_method, by_graph = variant.tried
        is_graph = len(by_graph) < len(by_method)
        began_s = time.perf_counter()
        result = run(found.leaves, found.generators) if is_graph else variant.method(self._learner, *args)
        (by_graph if is_graph else by_method).append(time.perf_counter() - began_s)
        if len(by_graph) == _TRIED_CALLS:
            variant.is_tried = True
            share = statistics.median(by_graph) / statistics.median(by_method)
            logger.info("%s.%s takes %.2f of its time", type(self._learner).__name__, variant.method.__name__, share)
            if share > _WORTHWHILE:
                variant.run, variant.is_open = None, False
                self.running -= 1
        return result
