"""Tokens of holders, and when a lease is void."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from surreal.base.system.process import process_start
from surreal.distributed.connection.holders import Holder, HolderWatch, holder_of, make_token


def token_of(pid: float, **changes: Any) -> str:
    return json.dumps(json.loads(make_token(10.0)) | {"pid": pid} | changes)


class Clock:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> HolderWatch:
    return HolderWatch(3.0, clock=clock)


def test_a_token_names_its_process_and_its_lease() -> None:
    first, second = make_token(10.0, fingerprint="x"), make_token(10.0)
    assert first != second
    holder = holder_of(first, 3.0)
    assert (holder.pid, holder.lease_s, holder.is_gone) == (os.getpid(), 10.0, False)


def test_a_process_of_this_machine_that_has_ended_is_gone(watch: HolderWatch) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    token = token_of(process.pid, began=process_start(process.pid))
    assert not watch.is_void(token, 10_000)
    process.communicate(b"\n")
    assert watch.is_void(token, 10_000)


def test_a_process_that_got_the_id_of_one_that_ended_is_another(watch: HolderWatch) -> None:
    token = token_of(os.getpid(), began=1)
    assert holder_of(token, 3.0).is_gone
    assert watch.is_void(token, 10_000)
    assert not holder_of(token_of(os.getpid(), machine="another", began=1), 3.0).is_gone
    assert not holder_of(token_of(os.getpid(), began=None), 3.0).is_gone


@pytest.mark.parametrize("left_ms", [3_609_000, -1])
def test_a_silent_holder_is_waited_for_no_longer_than_its_lease(clock: Clock, watch: HolderWatch, left_ms: int) -> None:
    """Redis would keep the key for an hour where the clock was set back, and forever without a time to live."""
    token = token_of(1, machine="another")
    for i in range(101):
        clock.now_s = 1000.0 + 0.1 * i
        assert not watch.is_void(token, left_ms if left_ms < 0 else left_ms - 100 * i)
    clock.now_s += 0.1
    assert watch.is_void(token, left_ms if left_ms < 0 else left_ms - 10_100)


def test_a_holder_that_renews_is_waited_for(clock: Clock, watch: HolderWatch) -> None:
    token = token_of(1, machine="another")
    for i in range(1000):
        clock.now_s = 1000.0 + 0.1 * i
        assert not watch.is_void(token, 10_000 - 100 * (i % 33))


def test_a_renewal_while_redis_did_not_answer_counts(clock: Clock, watch: HolderWatch) -> None:
    token = token_of(1, machine="another")
    assert not watch.is_void(token, 9_500)
    clock.now_s += 60.0
    assert not watch.is_void(token, 7_000)


@pytest.mark.parametrize(
    "token",
    ["", "4711", "{", "[]", "\ufffd", "[" * 100_000, '{"machine": 1}', token_of(1e999), token_of(1, lease_s="x")],
)
def test_what_is_no_token_is_of_another_machine(clock: Clock, watch: HolderWatch, token: str) -> None:
    assert str(holder_of(token, 3.0)) == "process 0 on another machine"
    assert not watch.is_void(token, 60_000)
    clock.now_s += 3.1
    assert watch.is_void(token, 56_900)


@pytest.mark.parametrize("lease_s", [float("inf"), float("nan"), -1.0, 1e9])
def test_a_token_with_an_impossible_lease_counts_as_another_machines(lease_s: float) -> None:
    token = json.dumps({"machine": "m", "host": "h", "pid": 1, "began": None, "lease_s": lease_s})
    assert holder_of(token, 5.0) == Holder("another machine", 0, 5.0, is_gone=False)
