"""Worker processes: they crash, hang, fail, and end with their owner."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import toy_envs

from surreal.base.errors import EnvError
from surreal.base.types import StepBatch, StepKind
from surreal.envs import SubprocEnvPool

MAKE = functools.partial(toy_envs.ToyEnv, max_length=1000)


def drive(pool: SubprocEnvPool, is_enough: Callable[[StepBatch], bool], timeout_s: float = 30.0) -> list[StepBatch]:
    """Receive and send until a batch satisfies the condition."""
    batches = []
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        batch = pool.recv(0.2)
        batches.append(batch)
        pool.send(np.zeros(len(batch.env_ids) - batch.num_last, int), batch.env_ids[batch.num_last :])
        if is_enough(batch):
            return batches
    raise AssertionError("the pool did not come so far in time")


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until_gone(pids: list[int], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not all(is_gone(pid) for pid in pids):
        assert time.monotonic() < deadline, "processes are still there"
        time.sleep(0.01)


def test_a_killed_worker_comes_back_while_the_others_go_on() -> None:
    with SubprocEnvPool([MAKE] * 3, num_workers=2, seed=0) as pool:
        drive(pool, lambda batch: 2 in batch.env_ids and batch.kind[-1] == StepKind.MID)
        drive(pool, lambda batch: 0 in batch.env_ids and batch.kind[0] == StepKind.MID)
        os.kill(pool.worker_pids[1], signal.SIGKILL)
        *_, batch = drive(pool, lambda batch: len(batch.closed_ids) > 0)
        assert batch.closed_ids.tolist() == [1, 2]
        assert not {1, 2} & set(batch.env_ids.tolist())
        batches = drive(pool, lambda batch: 2 in batch.env_ids)
        assert {0} <= {env_id for batch in batches for env_id in batch.env_ids.tolist()}
        back = batches[-1]
        assert (back.kind[np.isin(back.env_ids, [1, 2])] == StepKind.FIRST).all()
        assert all(len(batch.closed_ids) == 0 for batch in batches)
        drive(pool, lambda batch: 2 in batch.env_ids and (batch.kind[batch.env_ids == 2] == StepKind.MID).all())
        assert pool.metrics()["env/worker_restarts_total"] == 1


def test_rows_of_a_worker_that_died_meanwhile_take_their_actions_in_vain() -> None:
    with SubprocEnvPool([MAKE], seed=0) as pool:
        batch = pool.recv(60.0)
        assert batch.kind.tolist() == [StepKind.FIRST]
        os.kill(pool.worker_pids[0], signal.SIGKILL)
        deadline = time.monotonic() + 60.0
        while not len((lost := pool.recv(0.05)).closed_ids):
            assert time.monotonic() < deadline
        assert lost.closed_ids.tolist() == [0]
        pool.send(np.zeros(1, int), batch.env_ids)
        batch = pool.recv(60.0)
        assert batch.kind.tolist() == [StepKind.FIRST]
        with pytest.raises(ValueError, match="wait for one"):
            pool.send(np.zeros(1, int), np.ones(1, int))


def test_workers_that_die_too_often_end_the_pool() -> None:
    with SubprocEnvPool([MAKE], seed=0, max_restarts=0) as pool:
        pool.recv(60.0)
        os.kill(pool.worker_pids[0], signal.SIGKILL)
        with pytest.raises(EnvError, match=r"exit code -9; 1 deaths .* max_restarts = 0"):
            drive(pool, lambda batch: False)


def test_a_stuck_worker_is_replaced(tmp_path: Path) -> None:
    flag = tmp_path / "stuck"
    flag.touch()
    make = functools.partial(toy_envs.Stuck, str(flag))
    with SubprocEnvPool([make], seed=0, worker_timeout_s=60.0) as pool:
        batch = pool.recv(60.0)
        pool.send(np.zeros(1, int), batch.env_ids)
        batch = pool.recv(0.5)
        assert len(batch.env_ids) == 0
        pool._worker_timeout_s = 0.2
        flag.unlink()
        *_, batch = drive(pool, lambda batch: len(batch.closed_ids) > 0)
        pool._worker_timeout_s = None
        drive(pool, lambda batch: len(batch.env_ids) > 0)


def test_an_exception_of_an_environment_is_raised_by_recv() -> None:
    with SubprocEnvPool([toy_envs.ToyEnv, toy_envs.Failing], num_workers=2, seed=0) as pool:
        with pytest.raises(
            EnvError, match=r"worker 1 \(environments 1-1\) failed: ZeroDivisionError: the phys"
        ) as found:
            drive(pool, lambda batch: False)
        assert "in step" in found.value.__notes__[0]


def test_bad_arguments_are_refused_in_this_process() -> None:
    with pytest.raises(ValueError, match=r"num_workers is 3; it must be 1\.\.2"):
        SubprocEnvPool([toy_envs.ToyEnv] * 2, num_workers=3)
    with pytest.raises(EnvError, match="importable functions"):
        SubprocEnvPool([lambda: toy_envs.ToyEnv("box")])


OWNER = """
import sys, threading, time
sys.path[:0] = {path!r}
import functools, toy_envs
from surreal.envs import SubprocEnvPool

def main():
    pool = SubprocEnvPool([functools.partial(toy_envs.Stuck, {flag!r})] * 2, num_workers=2)
    found = set()
    while len(found) < 2:
        batch = pool.recv(1.0)
        found |= set(batch.env_ids.tolist())
    pool.send([0], [0])  # one worker hangs in a step, the other one waits for its action
    print(*pool.worker_pids, flush=True)
    time.sleep(600)

# Not behind a check of __name__: workers have no use for this file.
if {threaded}:
    threading.Thread(target=main).start()
else:
    main()
"""


@pytest.mark.parametrize("threaded", [False, True])
def test_workers_end_with_an_owner_that_is_killed(tmp_path: Path, threaded: bool) -> None:
    flag = tmp_path / "stuck"
    flag.touch()
    script = tmp_path / "owner.py"
    path = [str(Path(toy_envs.__file__).parent), str(Path(__file__).parents[3])]
    script.write_text(OWNER.format(path=path, flag=str(flag), threaded=threaded))
    owner: Any = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    try:
        pids = [int(word) for word in owner.stdout.readline().split()]
        assert len(pids) == 2
        assert not any(is_gone(pid) for pid in pids)
    finally:
        owner.kill()
        owner.communicate()
    wait_until_gone(pids)


def test_functions_of_the_main_file_are_found(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        f"""
import sys
sys.path[:0] = {[str(Path(toy_envs.__file__).parent), str(Path(__file__).parents[3])]!r}
import toy_envs
from surreal.envs import SubprocEnvPool

def make():
    return toy_envs.ToyEnv()

if __name__ == "__main__":
    with SubprocEnvPool([make]) as pool:
        while not len(pool.recv(1.0).env_ids):
            pass
    print("received", __file__)
"""
    )
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert found.stdout.split() == ["received", str(script)], found.stderr


def test_close_ends_the_workers() -> None:
    pool = SubprocEnvPool([MAKE] * 2, num_workers=2)
    pids = pool.worker_pids
    pool.close()
    pool.close()
    wait_until_gone(pids)
