"""A child ends with its parent, whatever ended that."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from surreal.base.system import process

ROOT = str(Path(__file__).parents[4])
CHILD = """
import sys, time
sys.path.insert(0, {root!r})
from surreal.base.system.process import die_with_parent
die_with_parent(parent_pid={parent}, follow_thread={follow})
print("ready", flush=True)
time.sleep(600)
"""
PARENT = """
import subprocess, sys, time, os
child = subprocess.Popen([sys.executable, "-c", {child!r}.replace("PARENT", str(os.getpid()))], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("follow", [True, False])
def test_a_child_ends_with_a_parent_that_is_killed(follow: bool) -> None:
    child = CHILD.format(root=ROOT, parent="PARENT", follow=follow)
    with subprocess.Popen(
        [sys.executable, "-c", PARENT.format(child=child)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not is_gone(pid)
        parent.kill()
    deadline = time.monotonic() + 10.0
    while not is_gone(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_child_whose_parent_died_before_ends_at_once() -> None:
    found = subprocess.run(
        [sys.executable, "-c", CHILD.format(root=ROOT, parent=1 << 30, follow=True)], capture_output=True, timeout=30
    )
    assert found.returncode == -9
    assert found.stdout == b""


def test_without_the_kernel_a_thread_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(process.sys, "platform", "darwin")
    monkeypatch.setattr(process.threading.Thread, "start", lambda self: started.append(self.name))
    process.die_with_parent()
    assert started == ["parent-watch"]
