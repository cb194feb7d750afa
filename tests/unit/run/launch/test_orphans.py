"""What a killed process leaves behind does not stay a zombie of the launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from surreal.run.launch.starting import _adopt_orphans
from surreal.run.launch.supervise import OrphanReaper

#: Starts a child that ends with its input, says its process id, and waits.
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def _is_adopting() -> Iterator[None]:
    if not _adopt_orphans(True):
        pytest.skip("this system has no subreapers")
    yield
    _adopt_orphans(False)


@pytest.mark.usefixtures("_is_adopting")
def test_an_orphan_that_has_ended_is_waited_for_and_a_child_is_left_alone() -> None:
    reaper = OrphanReaper()
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    orphan = int(parent.stdout.readline())
    assert Path(f"/proc/{orphan}").exists()
    parent.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)
    reaper.reap()  # sees the parent, which is polled before the next call
    assert parent.wait() == -signal.SIGKILL
    parent.stdout.close()
    deadline_s = time.monotonic() + 60
    while Path(f"/proc/{orphan}").exists():
        assert time.monotonic() < deadline_s
        reaper.reap()
        time.sleep(0.01)
