"""Errors of the protocol, and the limits that some of them report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from surreal.base.errors import SurrealError

#: A length has at most nine decimal digits.
MAX_FRAME_BYTES = 999_999_999


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one message; raising one lets a single peer take that much more memory and time."""

    #: length of a payload, 1 to 999,999,999; images and arrays of any one message fit into it, images of mode 1 as a
    #: byte for each pixel. Images become 4 times their bytes where they are read as float32.
    max_bytes: int = 16 << 20
    max_items: int = 1_000_000  #: entries of all lists and dictionaries of a message together, >= 1
    max_depth: int = 32  #: deepest nesting of lists and dictionaries, 1 to 200

    def __post_init__(self) -> None:
        if not 1 <= self.max_bytes <= MAX_FRAME_BYTES:
            raise ValueError(f"max_bytes is {self.max_bytes}; it must be 1 to {MAX_FRAME_BYTES}")
        if self.max_items < 1:
            raise ValueError(f"max_items is {self.max_items}; it must be >= 1")
        if not 1 <= self.max_depth <= 200:
            raise ValueError(f"max_depth is {self.max_depth}; it must be 1 to 200")


DEFAULT_LIMITS = Limits()


class RlxError(SurrealError):
    """Base of everything that goes wrong in RLX."""


class RlxDecodeError(RlxError):
    """Bytes or text from a peer that do not decode."""


class RlxFrameError(RlxDecodeError):
    """A frame is malformed: nothing that follows on this connection can be read."""

    def __init__(self, message: str, frames: Sequence[bytes] = ()) -> None:
        super().__init__(message)
        #: payloads that were whole before the malformed bytes; they are still to be answered
        self.frames = tuple(frames)


class RlxLimitError(RlxDecodeError):
    """A message is larger, deeper or holds more items than the limits allow."""


class RlxEncodeError(RlxError):
    """A value has no form in the protocol, or does not fit into it."""


class RlxRequestError(RlxError):
    """An invalid request; the message is sent back as an `error` reply."""


class RlxValueError(RlxRequestError):
    """A number that would do damage: not finite, or out of its range. The episode that it is of is cut."""

    def __init__(self, message: str, *, leaf: str, value: float = float("nan")) -> None:
        super().__init__(message)
        self.leaf = leaf  #: what it is of, such as a leaf of the state, or "the reward"
        self.value = value  #: the number; nan if it is none


class RlxServerError(RlxError):
    """The server cannot listen, or its thread ended."""


def brief(value: object) -> str:
    """Show a value from a peer in a message, which stays short however large the value is."""
    if isinstance(value, str):
        return repr(value[:40])
    if value is None or isinstance(value, bool | int | float):
        return repr(value)[:40]
    return f"a {type(value).__name__}"


def brief_keys(mapping: Mapping[str, object]) -> list[str]:
    """Show the keys of a dictionary from a peer; no more than twenty, none of them long."""
    return sorted(key[:40] for key in islice(mapping, 20))
