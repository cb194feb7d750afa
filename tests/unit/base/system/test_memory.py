"""Redis' memory is divided the same way by the configuration and by the owner of a stream."""

from __future__ import annotations

import pytest

from surreal.base.system.memory import ROOM_BYTES, largest_replay_bytes, stream_bound_bytes


@pytest.mark.parametrize("maxmemory", [1, 1 << 20, 8 << 20, 256 << 20, 64 << 30])
def test_a_replay_leaves_room_for_appends_below_the_streams_bound(maxmemory: int) -> None:
    bound, largest = stream_bound_bytes(maxmemory), largest_replay_bytes(maxmemory)
    assert bound <= 0.85 * maxmemory
    assert bound // 2 <= largest <= bound
    if bound >= 2 * ROOM_BYTES:
        assert bound - largest >= max(ROOM_BYTES, int(0.0999 * bound))
