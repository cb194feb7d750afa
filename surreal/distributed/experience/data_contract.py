"""The contract of a stream: the data format that its senders and readers agree on. Redis keeps it as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from surreal.base.errors import CodecError
from surreal.base.specs import ArraySpec, ObsSpec
from surreal.base.types import IS_INTERVENTION
from surreal.distributed.experience.payload import COMPRESSIONS, schema_of

FORMAT_VERSION = 1
MAX_STACK = 64
#: Prefix, in the table, of columns that the agent adds.
EXTRA_PREFIX = "extra."
#: Columns [n_actions] bool: the discrete actions that are legal in a step's observation, and in its next one.
MASK_COLUMN, NEXT_MASK_COLUMN = "action_mask", "next_action_mask"
#: Column with initial priorities from agents (Ape-X, Horgan et al. 2018, arXiv:1803.00933). It may hold any number;
#: readers ignore senseless ones.
PRIORITY_COLUMN = "priority"
#: Extras with this name, or with names that begin with it and a dot, are recurrent state before the step.
STATE_COLUMN = "state"


@dataclass(frozen=True)
class Contract:
    """The data format that all senders and readers of one stream agree on."""

    obs: ObsSpec  #: leaves of an observation
    action: ArraySpec  #: shape and dtype of an action
    extras: tuple[ArraySpec, ...] = ()  #: columns that the agent adds to each step
    #: number of steps that a segment repeats from the next one. So each step that it owns has its n-step return in the
    #: same chunk, for n <= lookahead + 1.
    lookahead: int = 0
    stack: int = 1  #: frames of an observation, >= 1; if more than one, `obs` describes a single frame
    compression: str | None = None  #: compression of each leaf of a block: "lz4", "zstd", or None
    #: steps of an episode between those that have their recurrent state with them, >= 1; steps 0, `state_interval`, ...
    #: have it.
    state_interval: int = 1

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT_VERSION,
            "obs": self.obs.to_json(),
            "action": self.action.to_json(),
            "extras": [extra.to_json() for extra in self.extras],
            "lookahead": self.lookahead,
            "stack": self.stack,
            "compression": self.compression,
            **({"state_interval": self.state_interval} if self.state_interval > 1 else {}),  # older ids stay the same
        }

    @classmethod
    def from_bytes(cls, text: bytes) -> Contract:
        """Parse a contract as stored in Redis; raises `CodecError` if it is none, or of another format version."""
        try:
            data = json.loads(text)
            if data["format"] != FORMAT_VERSION:
                raise CodecError(f"the stream has chunk format {data['format']}; this program reads {FORMAT_VERSION}")
            extras = tuple(ArraySpec.from_json(extra) for extra in data["extras"])
            obs, action = ObsSpec.from_json(data["obs"]), ArraySpec.from_json(data["action"])
            if type(data["lookahead"]) is not int or data["lookahead"] < 0:
                raise ValueError(f"lookahead is {data['lookahead']!r}; it must be an integer >= 0")
            if type(data["stack"]) is not int or not 1 <= data["stack"] <= MAX_STACK:
                raise ValueError(f"stack is {data['stack']!r}; it must be an integer 1 .. {MAX_STACK}")
            if data["compression"] not in (None, *COMPRESSIONS):
                raise ValueError(f"compression is {data['compression']!r}; it must be null or one of {COMPRESSIONS}")
            if type(interval := data.get("state_interval", 1)) is not int or interval < 1:
                raise ValueError(f"state_interval is {interval!r}; it must be an integer >= 1")
            return cls(obs, action, extras, data["lookahead"], data["stack"], data["compression"], interval)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise CodecError(f"the stream's contract cannot be read: {error}") from error

    @cached_property
    def stacked_obs(self) -> ObsSpec:
        """The observations of agents and learners: `obs`, or stacks of it, [stack, *shape] per leaf."""
        if self.stack == 1:
            return self.obs
        leaves = [ArraySpec(leaf.name, (self.stack, *leaf.shape), leaf.dtype) for leaf in self.obs.leaves]
        return ObsSpec(tuple(leaves), self.obs.structure)

    @cached_property
    def as_bytes(self) -> bytes:
        """Canonical JSON, as stored in Redis."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":")).encode()

    @cached_property
    def id(self) -> int:
        """64 bits of a hash of the contract; every chunk carries it."""
        return hash_of(self.as_bytes)

    @cached_property
    def table_columns(self) -> tuple[tuple[str, ArraySpec], ...]:
        """Columns of the table in order: name in the table, and spec of a row."""
        fixed: list[tuple[str, tuple[int, ...], Any]] = [
            ("action", self.action.shape, self.action.dtype),
            ("reward", (), np.float32),
            ("flags", (), np.uint8),  # 1 terminated, 2 truncated
            ("version", (), np.int32),  # parameter version that acted, -1 if unknown
        ]
        columns = [(name, ArraySpec(name, shape, np.dtype(dtype))) for name, shape, dtype in fixed]
        columns += [(EXTRA_PREFIX + extra.name, extra) for extra in self.extras]
        return tuple(columns)

    @cached_property
    def sparse(self) -> tuple[ArraySpec, ...]:
        """Extras that only some steps have: recurrent state, with a `state_interval` above 1."""
        return tuple(e for e in self.extras if self.state_interval > 1 and e.shape and is_state(e.name))

    def with_state(self, segments: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Mark the steps [n_steps] of a chunk's segments that have recurrent state, if some columns are `sparse`."""
        steps = segments[:, 0].astype(np.int64) - 1 - segments[:, 4]
        number = np.arange(steps.sum()) + np.repeat(segments[:, 3] - (np.cumsum(steps) - steps), steps)
        found: NDArray[np.bool_] = number % self.state_interval == 0
        return found

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of a row in a chunk's content, on average: an observation, and its step's row in the table."""
        sparse_bytes = sum(extra.nbytes for extra in self.sparse)
        in_table = sum(spec.nbytes for _, spec in self.table_columns) - sparse_bytes
        return self.obs.row_bytes + in_table + -(-sparse_bytes // self.state_interval)

    @cached_property
    def table_head_bytes(self) -> int:
        """Upper bound of a table's bytes without its rows."""
        return 256 * len(self.table_columns)

    @cached_property
    def table_schema(self) -> pa.Schema:
        return schema_of(self.table_columns, {EXTRA_PREFIX + extra.name for extra in self.sparse})


def is_state(name: str) -> bool:
    """Whether an extra with this name is recurrent state."""
    return name == STATE_COLUMN or name.startswith(STATE_COLUMN + ".")


def hash_of(text: bytes) -> int:
    """Compute the id of a contract from its canonical JSON."""
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little")


def frame_spec(stacked: ObsSpec, stack: int) -> ObsSpec:
    """Return the spec of one frame of stacked observations."""
    for leaf in stacked.leaves:
        if leaf.shape[:1] != (stack,):
            raise ValueError(
                f"observation {leaf.name or 'root'} has shape {leaf.shape}; it is not a stack of {stack} frames"
            )
    leaves = tuple(ArraySpec(leaf.name, leaf.shape[1:], leaf.dtype) for leaf in stacked.leaves)
    return ObsSpec(leaves, stacked.structure)


def extra_specs(
    extras: Mapping[str, NDArray[Any]], mask: NDArray[Any] | None = None, *, interventions: bool = False
) -> tuple[ArraySpec, ...]:
    """Return the specs of the columns that an agent adds, and of action masks, from one batch of them [N, ...]."""
    columns = dict(extras) if mask is None else {**extras, MASK_COLUMN: mask, NEXT_MASK_COLUMN: mask}
    if interventions:
        columns[IS_INTERVENTION] = np.zeros(1, np.bool_)
    return tuple(ArraySpec(name, column.shape[1:], column.dtype) for name, column in sorted(columns.items()))
