"""What RLX raises, a branch of the tree in `surreal.base.errors`.

RlxError
|-- RlxDecodeError       bytes or text from a peer that are not what they claim to be
|   |-- RlxFrameError    the framing is broken: nothing after it can be read
|   `-- RlxLimitError    larger, deeper or longer than the limits allow
|-- RlxEncodeError       a value that the protocol has no form for
|-- RlxRequestError      a request that cannot be answered; the connection stays open
|   `-- RlxValueError    a number in it that nobody could learn from: not finite, or out of its range
`-- RlxServerError       the server cannot start or go on
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from surreal.base.errors import SurrealError


class RlxError(SurrealError):
    """Base of everything that goes wrong in RLX."""


class RlxDecodeError(RlxError):
    """Bytes or text from a peer that do not decode."""


class RlxFrameError(RlxDecodeError):
    """A frame is malformed: nothing that follows on this connection can be read.

    Attributes:
        frames: payloads that were whole before the malformed bytes; they are still to be answered.
    """

    def __init__(self, message: str, frames: Sequence[bytes] = ()) -> None:
        super().__init__(message)
        self.frames = tuple(frames)


class RlxLimitError(RlxDecodeError):
    """A message is larger, deeper or holds more items than the limits allow."""


class RlxEncodeError(RlxError):
    """A value has no form in the protocol, or does not fit into it."""


class RlxRequestError(RlxError):
    """A request that cannot be answered as it is: its message goes back as an `error` reply."""


class RlxValueError(RlxRequestError):
    """A number that would do damage: not finite, or out of its range. The episode that it is of is cut.

    Attributes:
        leaf: what it is of, such as a leaf of the state, or "the reward".
        value: the number; nan if it is none.
    """

    def __init__(self, message: str, *, leaf: str, value: float = float("nan")) -> None:
        super().__init__(message)
        self.leaf = leaf
        self.value = value


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
