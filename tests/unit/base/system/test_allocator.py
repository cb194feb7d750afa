"""What is freed is kept."""

from __future__ import annotations

import subprocess
import sys

import pytest

# In a process of its own: the settings are the process's, and other allocations would disturb the count.
PROGRAM = """
import resource
import numpy as np
from surreal.base.system.allocator import keep_freed_memory

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
