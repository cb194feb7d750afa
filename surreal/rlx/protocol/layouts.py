"""Reads a client's updates by the layout of its earlier ones: the same as `decode`, many times faster.

The updates of one client differ in the values of reward and state only; everything between these, the frame around
them, keys, types and shapes, is the same bytes every time. So one call takes them apart and one comparison checks
them. Where they differ in anything else, `decode` reads the message.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.base.specs import ArraySpec
from surreal.base.types import EXECUTED_ACTION
from surreal.rlx.protocol import arrays
from surreal.rlx.protocol.framing import frame

_U32 = struct.Struct("<I")

#: Layouts that are remembered; the first update of an episode has another than the rest.
_MAX_LAYOUTS = 4
#: Bytes of a layout that are remembered, at most.
_MAX_CONSTANT_BYTES = 1024
#: Forms of the rewards that vary, by type id.
_REWARDS = {arrays.DOUBLE: "d", arrays.INT4: "i", arrays.INT64: "q"}
#: Keys of updates that `decode` always reads: their values differ.
_RARE = frozenset((EXECUTED_ACTION, "amend_within_s"))
#: Bytes of the values that have no other form, by type id.
_FIXED = {arrays.NULL: 0, arrays.INT4: 4, arrays.DOUBLE: 8, arrays.BOOLEAN: 1, arrays.INT64: 8}


class Layouts:
    """Layouts of one client's updates, by the length of frames; `plain` states are observations unchanged."""

    __slots__ = ("_layouts", "_plain", "get")

    def __init__(self, plain: ArraySpec | None = None) -> None:
        self._plain = plain
        self._layouts: dict[int, Layout | None] = {}
        #: Give the layout of frames of a length, or None.
        self.get = self._layouts.get

    def learn(self, payload: bytes, message: dict[str, Any]) -> None:
        """Remember the layout of a payload, which was decoded to `message`, if it is an update of the usual kind."""
        command = message.get("command")
        if len(self._layouts) < _MAX_LAYOUTS and isinstance(command, str) and command == "update":
            data = frame(payload)
            if len(data) not in self._layouts:
                self._layouts[len(data)] = _find_layout(data, len(data) - 1 - len(payload), message, self._plain)


class Layout:
    """The places of reward and state in frames that are otherwise equal to `data`.

    Args:
        state_at: where its bytes begin and end.
        reward_at: where the reward begins and ends; None if there is none, or one that is None.
        reward_form: the reward's format for `struct`.
    """

    __slots__ = ("_constants", "_dtype", "_reward", "_shape", "_state", "_unpack", "is_plain")

    def __init__(
        self,
        data: bytes,
        state: NDArray[Any],
        state_at: tuple[int, int],
        reward_at: tuple[int, int] | None,
        reward_form: str,
        plain: ArraySpec | None,
    ) -> None:
        self._dtype, self._shape = state.dtype, state.shape
        #: whether the bytes of the state are an observation
        self.is_plain = plain is not None and (state.dtype, state.shape) == (plain.dtype, plain.shape)
        values = [(*state_at, f"{state.nbytes}s")]
        if reward_at is not None:
            values.append((*reward_at, reward_form))
        values.sort()
        # Constants and values take turns: constants have the even numbers.
        parts, position = "<", 0
        for start, end, form in values:
            parts += f"{start - position}s{form}"
            position = end
        unpack = self._unpack = struct.Struct(f"{parts}{len(data) - position}s").unpack_from
        self._constants = unpack(data)[::2]
        self._state = 1 + 2 * [value[:2] for value in values].index(state_at)
        self._reward = None if reward_at is None else 4 - self._state

    def read(self, data: bytes | memoryview) -> tuple[bytes, float | None] | None:
        """Return the bytes of the state, and the reward, from data that begin with a frame of the layout's length;
        None: it is another frame.
        """
        parts = self._unpack(data)
        if parts[::2] != self._constants:
            return None
        return parts[self._state], None if self._reward is None else parts[self._reward]

    def message(self, state: bytes, reward: float | None) -> dict[str, Any]:
        """Decode the message in a frame, as `decode` does, without the keys that an update does not need."""
        array: NDArray[Any] = np.ndarray(self._shape, self._dtype, state)
        return {"command": "update", "reward": reward, "state": array, "terminal": False}


def _find_layout(data: bytes, start: int, message: dict[str, Any], plain: ArraySpec | None) -> Layout | None:
    """Find the values in a frame whose payload, at `start`, was already decoded; None for an unusual one."""
    state = message.get("state")
    if not isinstance(state, np.ndarray) or state.dtype.kind not in "iuf" or not state.size:
        return None
    truncated = message.get("truncated")
    if message.get("terminal") is not False or not (truncated is None or truncated is False):
        return None
    if len(data) - state.nbytes > _MAX_CONSTANT_BYTES or not _RARE.isdisjoint(message):
        return None
    places: dict[str, tuple[int, int, int]] = {}
    position = start + 4
    while position < len(data) - 1:
        key, position = _text_at(data, position)
        kind = data[position]
        begin, end = _value_span(data, position + 1, kind)
        if begin < 0 or key in places:
            return None
        places[key] = (kind, begin, end)
        position = end
    reward_kind, *reward_at = places.get("reward", (arrays.NULL, 0, 0))
    if reward_kind == arrays.NULL:
        return Layout(data, state, places["state"][1:], None, "", plain)
    if reward_kind not in _REWARDS:
        return None
    return Layout(data, state, places["state"][1:], (reward_at[0], reward_at[1]), _REWARDS[reward_kind], plain)


def _value_span(data: bytes, position: int, kind: int) -> tuple[int, int]:
    """Return where the bytes of a value are, of an array its raw bytes; (-1, -1) for unusual types."""
    if kind in _FIXED:
        return position, position + _FIXED[kind]
    if kind == arrays.STRING:
        return position, position + 4 + _u32_at(data, position)
    if kind == arrays.NDARRAY:
        _, position = _text_at(data, position)
        position += 4 + 4 * _u32_at(data, position)
        return position + 4, position + 4 + _u32_at(data, position)
    return -1, -1


def _text_at(data: bytes, position: int) -> tuple[str, int]:
    length = _u32_at(data, position)
    return data[position + 4 : position + 4 + length].decode(), position + 4 + length


def _u32_at(data: bytes, position: int) -> int:
    (value,) = _U32.unpack_from(data, position)
    return int(value)
