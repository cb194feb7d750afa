"""Bounds on what a peer may send, checked before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass

#: A length has at most nine decimal digits.
MAX_FRAME_BYTES = 999_999_999


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one message; raising one lets a single peer take that much more memory and time.

    Attributes:
        max_bytes: length of a payload, 1 to 999,999,999; images and arrays of any one message fit into it, images of
            mode 1 as a byte for each pixel. Images become 4 times their bytes where they are read as float32.
        max_items: entries of all lists and dictionaries of a message together, >= 1.
        max_depth: how deep lists and dictionaries may nest, 1 to 200.
    """

    max_bytes: int = 16 << 20
    max_items: int = 1_000_000
    max_depth: int = 32

    def __post_init__(self) -> None:
        if not 1 <= self.max_bytes <= MAX_FRAME_BYTES:
            raise ValueError(f"max_bytes is {self.max_bytes}; it must be 1 to {MAX_FRAME_BYTES}")
        if self.max_items < 1:
            raise ValueError(f"max_items is {self.max_items}; it must be >= 1")
        if not 1 <= self.max_depth <= 200:
            raise ValueError(f"max_depth is {self.max_depth}; it must be 1 to 200")


DEFAULT_LIMITS = Limits()
