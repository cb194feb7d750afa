"""How Redis' memory is divided, and how large chunks are: one formula for the check of settings and its users."""

from __future__ import annotations

import math

#: Share of maxmemory that the stream may take; the rest is for parameters, heartbeats and metrics.
STREAM_SHARE = 0.85
#: What the owner leaves free below the stream's bound is room for appends while it evicts: a share of the bound, and at
#: least some large chunks, but never more than half.
FILL_SHARE = 0.9
ROOM_BYTES = 4 << 20
#: maxmemory of a server that nobody gave one: the least, and the steps by which it grows with its replay.
_LEAST_BYTES, _STEP_BYTES = 512 << 20, 64 << 20
#: Rows that a chunk may repeat of the one before for each new row.
_MOST_REPEATED = 0.3


def stream_bound_bytes(maxmemory_bytes: int) -> int:
    """Bytes at which a stream takes nothing more."""
    return int(STREAM_SHARE * maxmemory_bytes)


def largest_replay_bytes(maxmemory_bytes: int) -> int:
    """Most bytes of experience that the owner of a stream may keep."""
    bound = stream_bound_bytes(maxmemory_bytes)
    room = max((1 - FILL_SHARE) * bound, ROOM_BYTES)
    return max(int(bound - room), bound // 2)


def memory_for_replay(replay_bytes: int, least_bytes: int = _LEAST_BYTES) -> int:
    """Give the maxmemory of a server that holds so many bytes of experience, and never less than `least_bytes`."""
    memory = least_bytes
    while largest_replay_bytes(memory) < replay_bytes:
        memory += _STEP_BYTES
    return memory


def least_new_rows(repeated: int) -> int:
    """Give the new rows that a chunk needs if it repeats so many of the one before, >= 1: sent are at most 1.3 each."""
    return max(1, math.ceil(repeated / _MOST_REPEATED))
