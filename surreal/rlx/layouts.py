"""Decodes a client's updates by the layout of its earlier ones: the same as `decode`, several times faster.

The updates of one client differ in the values of reward, state and terminal only; everything between these, types,
shapes and keys, is the same bytes every time. Where it is not, `decode` reads the message.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from surreal.rlx import type_ids
from surreal.rlx.framing import frame

_U32 = struct.Struct("<I")
_F64 = struct.Struct("<d")

#: Layouts that are remembered; the first update of an episode has another than the rest.
_MAX_LAYOUTS = 4
#: Bytes of a layout that are remembered, at most.
_MAX_CONSTANT_BYTES = 1024
#: Bytes of the values that have no other form, by type id.
_FIXED = {type_ids.NULL: 0, type_ids.INT4: 4, type_ids.DOUBLE: 8, type_ids.BOOLEAN: 1, type_ids.INT64: 8}


class Layouts:
    """Layouts of the updates of one client, as whole frames."""

    __slots__ = ("_layouts",)

    def __init__(self) -> None:
        self._layouts: dict[int, _Layout | None] = {}

    def read(self, data: bytes) -> dict[str, Any] | None:
        """Decode what was received, if it is one frame that differs in its values only from one learnt before."""
        layout = self._layouts.get(len(data))
        return None if layout is None else layout.read(data)

    def learn(self, payload: bytes, message: dict[str, Any]) -> None:
        """Remember the layout of a payload, which was decoded to `message`, if it is an update of the usual kind."""
        command = message.get("command")
        if len(self._layouts) < _MAX_LAYOUTS and isinstance(command, str) and command == "update":
            data = frame(payload)
            if len(data) not in self._layouts:
                self._layouts[len(data)] = _find_layout(data, len(data) - 1 - len(payload), message)


class _Layout:
    """Where the values of an update are, in frames that are otherwise equal to `data`."""

    __slots__ = ("_base", "_constants", "_dtype", "_reward_at", "_shape", "_state_at", "_terminal_at")

    def __init__(self, data: bytes, message: dict[str, Any], values: dict[str, tuple[int, int]]) -> None:
        state = message["state"]
        self._dtype, self._shape = state.dtype, state.shape
        self._base = {key: value for key, value in message.items() if key not in values}
        self._state_at = values["state"][0]
        self._terminal_at = values["terminal"][0]
        self._reward_at = values["reward"][0] if "reward" in values else None
        self._constants: list[tuple[int, int, bytes]] = []
        begin = 0
        for start, end in [*sorted(values.values()), (len(data), len(data))]:
            self._constants.append((begin, start, data[begin:start]))
            begin = end

    def read(self, data: bytes) -> dict[str, Any] | None:
        """Read a frame of the same length; None: it is another."""
        for start, end, constant in self._constants:
            if data[start:end] != constant:
                return None
        message = self._base.copy()
        # Not aligned, perhaps; it is copied into a batch anyway.
        message["state"] = np.ndarray(self._shape, self._dtype, data, self._state_at)
        message["terminal"] = data[self._terminal_at] == 1
        if self._reward_at is not None:
            (message["reward"],) = _F64.unpack_from(data, self._reward_at)
        return message


def _find_layout(data: bytes, start: int, message: dict[str, Any]) -> _Layout | None:
    """Find the values in a frame whose payload, at `start`, was decoded already; None where it is not as usual."""
    state = message.get("state")
    if not isinstance(state, np.ndarray) or state.dtype.kind not in "iuf" or not state.size:
        return None
    if len(data) - state.nbytes > _MAX_CONSTANT_BYTES:
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
    values = {}
    for key, kind in (("state", type_ids.NDARRAY), ("terminal", type_ids.BOOLEAN), ("reward", type_ids.DOUBLE)):
        if key in places and places[key][0] == kind:
            values[key] = places[key][1:]
    return _Layout(data, message, values) if "state" in values and "terminal" in values else None


def _value_span(data: bytes, position: int, kind: int) -> tuple[int, int]:
    """Give the bytes of a value, of an array its raw ones; (-1, -1) for types that are not of the usual kind."""
    if kind in _FIXED:
        return position, position + _FIXED[kind]
    if kind == type_ids.STRING:
        return position, position + 4 + _u32_at(data, position)
    if kind == type_ids.NDARRAY:
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
