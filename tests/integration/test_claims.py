"""One process of each name in a run; the others stand by until it has ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest

from surreal.base.errors import StoppedError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.run.process.liveness import Claim


def hold(client: RedisClient, pid: int, machine: str | None = None) -> None:
    """Let another process hold the name."""
    assert Claim(client, "agent-0").try_take() == ""
    key = client.run_keys.claim("agent-0")
    token = json.loads(client.redis.get(key))  # type: ignore[arg-type]
    token |= {"id": "another", "pid": pid, **({"machine": machine} if machine else {})}
    client.redis.set(key, json.dumps(token), px=60_000)


def test_a_second_process_stands_by_until_the_first_gives_the_name_back(
    client: RedisClient, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surreal.base.system.logs.PATIENCE_S", 0.0)
    first, second = Claim(client, "agent-0"), Claim(client, "agent-0")
    stop = threading.Event()
    first.take(stop)
    assert second.try_take().startswith(f"process {os.getpid()} on ")
    assert first.try_take() == ""
    thread = threading.Thread(target=second.take, args=(stop,))
    thread.start()
    while "standing by: agent-0" not in caplog.text:
        assert thread.is_alive()
    assert "this one takes over when that one ends" in caplog.text  # and no advice that would not help a learner
    second_name = Claim(client, "agent-1")
    assert second_name.try_take() == ""
    first.release()
    thread.join(30.0)
    assert not thread.is_alive()
    assert first.try_take()


def test_a_stand_by_ends_when_it_is_told_to(client: RedisClient) -> None:
    hold(client, os.getpid())
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        Claim(client, "agent-0").take(stop)


def test_a_process_of_this_machine_that_is_gone_is_not_waited_for(client: RedisClient) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    hold(client, process.pid)
    assert Claim(client, "agent-0").try_take() == ""


def test_a_process_of_another_machine_is_waited_for(client: RedisClient) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    hold(client, process.pid, machine="another")
    assert Claim(client, "agent-0").try_take().startswith(f"process {process.pid} on ")


def test_a_holder_that_is_away_too_long_loses_the_name(client: RedisClient) -> None:
    first, second = Claim(client, "agent-0", ttl_s=0.001), Claim(client, "agent-0")
    assert first.try_take() == ""
    while second.try_take():
        pass
    assert first.try_take()
    first.release()
    assert second.try_take() == ""


def test_a_learner_waits_for_the_end_of_those_that_differ(client: RedisClient) -> None:
    now = client.server_time_s()
    for name, fingerprint in (("agent-0", "mine"), ("agent-1", "another")):
        beat = Heartbeat(f"{name}-x", "agent", name, 1, "host", now, now)
        client.redis.hset(client.run_keys.processes, beat.id, beat.encode())  # type: ignore[arg-type]
        assert Claim(client, name, fingerprint).try_take() == ""
    stop = threading.Event()
    thread = threading.Thread(target=Claim(client, "learner", "mine").wait_until_all_agree, args=(stop,))
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    client.redis.delete(client.run_keys.claim("agent-1"))
    thread.join(30.0)
    assert not thread.is_alive()


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'{"pid": "x"}', b"\xff"])
def test_bytes_that_are_no_claim_hold_nothing(client: RedisClient, value: bytes) -> None:
    client.redis.set(client.run_keys.claim("agent-0"), value or b" ", px=60_000)
    assert Claim(client, "agent-0").try_take() == ""


@pytest.mark.parametrize("field", ["machine", "host", "pid", "began", "lease_s"])
def test_a_claim_that_was_changed_by_another_is_taken_back(client: RedisClient, field: str) -> None:
    mine, key = Claim(client, "agent-0"), client.run_keys.claim("agent-0")
    assert mine.try_take() == ""
    fields = json.loads(client.redis.get(key) or b"") | {field: "x"}  # type: ignore[arg-type]
    client.redis.set(key, json.dumps(fields), px=60_000)
    assert mine.try_take() == ""
    assert Claim(client, "agent-0").try_take() != ""
