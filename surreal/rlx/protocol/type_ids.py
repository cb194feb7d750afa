"""The numbers that stand before each value of a message, and the version before all of them."""

from __future__ import annotations

VERSION = 1

#: NONE and UINT4 are read, but never written.
NONE, NULL, INT4, STRING, DOUBLE, BOOLEAN, IMAGE, NDARRAY, LIST, UINT4, INT64, DICT = range(12)
