"""Recording: what one call of a method does to tensors, as a graph without Python.

A recording follows the operations of the call itself (forward, backward, clipping, optimizer, target networks), so a
learner needs no second form of its update. What the graph reads and changes is named: tensors of the learner's state,
tensors of the arguments, and random numbers, which are drawn before each run, by the same generators and in the same
order as without a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from surreal.base.pytorch import recording
from surreal.learner.stepping.stepper import ParameterGroups

#: Graphs of more operations take minutes to compile.
_MAX_NODES = 6000
#: How random numbers are drawn, in place: methods of a tensor.
_DRAWS = {getattr(Tensor, name): name for name in ("normal_", "uniform_", "exponential_")}


class NotRecordableError(Exception):
    """The call does what a graph cannot, such as reading a number of a tensor; the message names it."""


@dataclass(frozen=True)
class Draw:
    """Random numbers that a run needs."""

    method: str  #: method of a tensor, such as `normal_`
    shape: tuple[int, ...]
    args: tuple[float, ...]
    generator: int  #: number of the generator among those of the call's arguments

    def into(self, tensor: Tensor, generator: torch.Generator) -> None:
        """Draw the numbers into a tensor of this shape."""
        getattr(tensor, self.method)(*self.args, generator=generator)


@dataclass(frozen=True)
class Interface:
    """Inputs and outputs of a graph, in order; as JSON next to the compiled graph."""

    state: list[str]  #: names of the tensors of the learner's state that it reads
    mutated: list[str]  #: names of those that it changes
    leaves: list[int]  #: numbers of the tensors of the arguments that it reads
    draws: list[Draw]  #: random numbers that the call draws, in order
    used_draws: list[int]  #: numbers of the draws that the graph reads
    outputs: list[str]  #: keys of the dict that the call returns
    norms: list[str]  #: groups of parameters whose gradient's norm it returns after that, step by step

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Interface:
        """Read what `as_json` gave, after JSON; raises `KeyError` or `TypeError` for something else."""
        draws = [Draw(d["method"], tuple(d["shape"]), tuple(d["args"]), d["generator"]) for d in data["draws"]]
        return cls(**{**data, "draws": draws})


def record(
    call: Callable[[], Mapping[str, Tensor]],
    groups: ParameterGroups,
    state: Mapping[str, Tensor],
    leaves: Sequence[Tensor],
    generators: Sequence[torch.Generator],
) -> tuple[torch.fx.GraphModule, Interface]:
    """Record a call, which reads and changes only `state` and the `leaves` of its arguments; they stay as they were.
    Raises `NotRecordableError` if it reads numbers out of tensors, or tensors or random numbers from elsewhere.
    """
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    outputs, norms = list[str](), list[str]()
    changes = dict[str, int]()

    def traced(*_: Tensor) -> list[Tensor]:
        with groups.recording() as steps:
            found = call()
        outputs.extend(found)
        norms.extend(group for group, _ in steps)
        changes.update({name: tensor._version for name, tensor in state.items()})
        return [tensor.detach() for tensor in (*found.values(), *(norm for _, norm in steps))]

    tape = _Tape(generators)
    with recording():
        if generators:  # what is drawn must be known before: it is an input
            with Snapshot(state, generators), tape, groups.recording():
                call()
        before = {name: tensor._version for name, tensor in state.items()}
        try:
            # One mode for the shapes of all operations: torch makes one for each otherwise, in two thirds of the time.
            with Snapshot(state, ()), tape.again(), tracing(TracingContext(FakeTensorMode())):
                graph = make_fx(traced, tracing_mode="real")(*state.values(), *leaves, *tape.values)
        except Exception as error:  # what a method may do that a graph cannot has no end
            raise NotRecordableError(str(error).strip().partition("\n")[0]) from error
    _check(graph)
    used = _drop_unused(graph)
    state_names, leaf, draw = list(state), len(state), len(state) + len(leaves)
    interface = Interface(
        state=[state_names[i] for i in used if i < leaf],
        mutated=[name for name in state if changes[name] != before[name]],
        leaves=[i - leaf for i in used if leaf <= i < draw],
        draws=tape.draws,
        used_draws=[i - draw for i in used if i >= draw],
        outputs=outputs,
        norms=norms,
    )
    return graph, interface


class Snapshot:
    """Values of tensors and states of generators; as a context, it restores them at the end."""

    def __init__(self, state: Mapping[str, Tensor], generators: Sequence[torch.Generator]) -> None:
        self._tensors, self._generators = list(state.values()), generators
        self._values = [tensor.detach().clone() for tensor in self._tensors]
        self._seeds = [generator.get_state() for generator in generators]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.restore()

    @torch.no_grad()
    def restore(self) -> None:
        """Restore them in place."""
        for tensor, value in zip(self._tensors, self._values, strict=True):
            tensor.copy_(value)
        for generator, seed in zip(self._generators, self._seeds, strict=True):
            generator.set_state(seed)


class _Tape(TorchFunctionMode):
    """Notes what is drawn; afterwards, hands out the same numbers."""

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.draws: list[Draw] = []
        self.values: list[Tensor] = []
        self._generators = list(generators)
        self._position: int | None = None

    def again(self) -> _Tape:
        """Hand out, from now on."""
        self._position = 0
        return self

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        generator = kwargs.get("generator")
        if generator is None:
            return func(*args, **kwargs)
        if func not in _DRAWS or generator not in self._generators:
            raise NotRecordableError(f"{func.__name__} draws numbers in a way that a graph cannot")
        if self._position is not None:
            self._position += 1
            return self.values[self._position - 1]
        found = func(*args, **kwargs)
        self.draws.append(Draw(_DRAWS[func], tuple(found.shape), tuple(args[1:]), self._generators.index(generator)))
        self.values.append(found.detach().clone())
        return found


def _check(graph: torch.fx.GraphModule) -> None:
    """Raise `NotRecordableError` for a graph that is too large, draws numbers, or has tensors from elsewhere."""
    if len(graph.graph.nodes) > _MAX_NODES:
        raise NotRecordableError(f"it has {len(graph.graph.nodes)} operations, more than {_MAX_NODES}")
    for node in graph.graph.nodes:
        if node.op == "get_attr" and any(
            user.target is not torch.ops.aten.lift_fresh_copy.default for user in node.users
        ):
            raise NotRecordableError("it reads a tensor that is neither its argument nor the learner's state")
        if isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags:
            raise NotRecordableError(f"{node.target} draws random numbers without a generator")


def _drop_unused(graph: torch.fx.GraphModule) -> list[int]:
    """Remove what does nothing; returns the numbers of the inputs that are left."""
    graph.graph.eliminate_dead_code()
    used = list[int]()
    for number, node in enumerate(node for node in graph.graph.nodes if node.op == "placeholder"):
        if node.users:
            used.append(number)
        else:
            graph.graph.erase_node(node)
    graph.recompile()
    return used
