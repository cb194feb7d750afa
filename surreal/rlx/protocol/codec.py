"""The payload of an RLX message: `u32 version`, then `(key, type, value)*` to the end; little-endian throughout.

Compatible, byte for byte, with RELAAX 1.1.0. Called by the server's sessions and by the clients; pure: no I/O, no
clock, no torch. Every length that a peer declares is checked against what has arrived, and against `Limits`, before
anything is allocated. What the protocol has no form for is refused, never turned into text.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from surreal.rlx.protocol.errors import DEFAULT_LIMITS, Limits, RlxDecodeError, RlxLimitError
from surreal.rlx.protocol.reader import Reader
from surreal.rlx.protocol.writer import Writer


def encode(message: Mapping[str, Any]) -> bytes:
    """Encode a message.

    Args:
        message: keys to None, bool, int (64 bit), float, str, NumPy scalars and arrays, Pillow images, lists, tuples,
            and dictionaries with str keys.

    Raises:
        RlxEncodeError: a value has no form in the protocol.
    """
    return Writer().message(message)


def decode(payload: bytes, limits: Limits = DEFAULT_LIMITS, *, keeps_images: bool = False) -> dict[str, Any]:
    """Decode a message.

    Arrays are read-only views of `payload` where their alignment allows it, else copies.

    Args:
        payload: one message.
        limits: bounds on it.
        keeps_images: give `images.Image` in place of the arrays that images decode to.

    Raises:
        RlxDecodeError: the payload is cut off or malformed; `RlxLimitError` if it is over a limit.
    """
    if type(payload) is not bytes:
        payload = bytes(payload)
    if len(payload) > limits.max_bytes:
        raise RlxLimitError(f"a message of {len(payload)} bytes is over the limit of {limits.max_bytes}")
    try:
        return Reader(payload, limits, keeps_images=keeps_images).message()
    except (struct.error, IndexError) as error:
        # Fields of fixed size are read without a separate check: past the end, these are raised.
        raise RlxDecodeError(f"the message of {len(payload)} bytes is cut off") from error
