"""Redis' memory is divided the same way by the configuration and by the owner of a stream."""

from __future__ import annotations

import subprocess
import sys

import pytest

from surreal.base.system.process import ROOM_BYTES, largest_replay_bytes, stream_bound_bytes


@pytest.mark.parametrize("maxmemory", [1, 1 << 20, 8 << 20, 256 << 20, 64 << 30])
def test_a_replay_leaves_room_for_appends_below_the_streams_bound(maxmemory: int) -> None:
    bound, largest = stream_bound_bytes(maxmemory), largest_replay_bytes(maxmemory)
    assert bound <= 0.85 * maxmemory
    assert bound // 2 <= largest <= bound
    if bound >= 2 * ROOM_BYTES:
        assert bound - largest >= max(ROOM_BYTES, int(0.0999 * bound))


# In a process of its own: the settings are the process's, and other allocations would disturb the count.
PROGRAM = """
import resource
import numpy as np
from surreal.base.system.process import keep_freed_memory

def page_faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        arrays = [np.ones(3 << 20) for _ in range(3)]
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if keep_freed_memory():
    page_faults(3)
    print(page_faults(5))
"""


def test_large_arrays_use_the_same_memory_again() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    if not done.stdout:
        pytest.skip("this C library cannot be told")
    # 24 MiB each, so 6144 pages, or at least 12 large ones, of one array alone.
    assert int(done.stdout) < 12
