"""Memory: how Redis' memory is divided, how large chunks are, and what a process does with memory that it freed."""

from __future__ import annotations

import ctypes
import math

#: Share of maxmemory that the stream may take; the rest is for parameters, heartbeats and metrics.
STREAM_SHARE = 0.85
#: The owner keeps the stream below its bound, so that there is room for appends while it evicts: a share of the bound,
#: and at least some large chunks, but never more than half.
FILL_SHARE = 0.9
ROOM_BYTES = 4 << 20
#: Default maxmemory of a server: the least, and the steps by which it grows with its replay.
_LEAST_BYTES, _STEP_BYTES = 512 << 20, 64 << 20
#: Rows that a chunk may repeat of the one before for each new row.
_MOST_REPEATED = 0.3

# <malloc.h> of glibc
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 256 << 20
_LARGEST_KEPT_BYTES = 32 << 20


def stream_bound_bytes(maxmemory_bytes: int) -> int:
    """Return the bytes at which a stream refuses more."""
    return int(STREAM_SHARE * maxmemory_bytes)


def largest_replay_bytes(maxmemory_bytes: int) -> int:
    """Return the most bytes of experience that the owner of a stream may keep."""
    bound = stream_bound_bytes(maxmemory_bytes)
    room = max((1 - FILL_SHARE) * bound, ROOM_BYTES)
    return max(int(bound - room), bound // 2)


def memory_for_replay(replay_bytes: int, least_bytes: int = _LEAST_BYTES) -> int:
    """Return the maxmemory of a server that holds so many bytes of experience, at least `least_bytes`."""
    memory = least_bytes
    while largest_replay_bytes(memory) < replay_bytes:
        memory += _STEP_BYTES
    return memory


def least_new_rows(repeated: int) -> int:
    """Return the new rows, >= 1, that a chunk needs if it repeats so many: at most 1.3 rows are sent for each."""
    return max(1, math.ceil(repeated / _MOST_REPEATED))


def keep_freed_memory() -> bool:
    """Make the C library keep freed memory for later arrays instead of returning it to the system; call it early.

    A forward pass of a convolutional network takes and frees tens of MiB. The system clears every page that it gives
    out, which can cost half as much time as the network. Up to 256 MiB are kept, in arrays of up to 32 MiB each.

    Returns:
        Whether the C library supports it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES) and mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES))
