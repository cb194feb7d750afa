"""Disturbances and their watcher on a real Redis and real processes: faults are planted, and healed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from benchmarks.chunks import CARTPOLE, prepare_chunk
from benchmarks.fleet import Fleet
from surreal.base.errors import ConfigError
from surreal.config import load_config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.shards import ReplayShards
from surreal.distributed.experience.stream import Stream
from surreal.distributed.telemetry.telemetry import Telemetry
from surreal.plugins.chaos.audit import Audit, ProcessBook, judge_blocks, judge_keys
from surreal.plugins.chaos.command import only_possible
from surreal.plugins.chaos.disturbances.processes import Guard, Kill, Kind, NotDoneError, Pause, Starve, find_process
from surreal.plugins.chaos.disturbances.servers import Cut, Flush, Full
from surreal.plugins.chaos.observing import Life
from surreal.plugins.chaos.plan import ChaosOptions
from surreal.plugins.chaos.subject import Keeps, Server, Subject
from surreal.run.launch.servers import RunServers

ROOT = Path(__file__).parents[2]


@pytest.fixture
def client(redis_server: Any, run_id: str) -> Iterator[RedisClient]:
    with RedisClient(redis_server.address, run=run_id) as found:
        yield found
        found.delete_run()


@pytest.fixture
def audit(client: RedisClient) -> Audit:
    subject = Subject(
        "a run",
        load_config("cartpole-dqn"),
        None,
        client,
        ReplayShards(client),
        client,
        [],
        is_new=True,
        can_kill=False,
    )
    return Audit(subject)


@pytest.fixture
def fleet(client: RedisClient, redis_server: Any) -> Iterator[Fleet]:
    found = Fleet(redis_server.address, client.run, 3, prepare_chunk(**CARTPOLE))
    yield found
    found.close()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.02)


def life_of(process: subprocess.Popen[bytes], *, age_s: float = 0.0) -> Life:
    return Life("id", "agent-0", "agent", process.pid, True, True, age_s, 1, 0, 0, 0)


def broken(audit: Audit) -> dict[str, str]:
    return {verdict.name: " ".join(verdict.violations) for verdict in audit.verdicts() if not verdict.holds}


# -- what is seen -----------------------------------------------------------------------------------------------------


def test_what_senders_store_is_seen_and_adds_up(audit: Audit, fleet: Fleet) -> None:
    assert audit.look()
    sent = fleet.send(0.1)
    assert audit.look()
    assert audit.standing.steps == sum(sent.chunks) * CARTPOLE["chunk_steps"]
    # All three send the same prepared chunk, so steps of an episode do not follow each other; all else does.
    assert set(broken(audit)) <= {"nothing is doubled", "nothing acknowledged is lost"}


@pytest.mark.parametrize(
    ("fault", "name", "wrong"),
    [
        (lambda redis, keys: redis.hincrby(keys.meta, "steps", 7), "the global step is exact", "counts"),
        (
            lambda redis, keys: redis.xadd(keys.stream, redis.xrevrange(keys.stream, count=1)[0][1]),
            "nothing is doubled",
            "came again",
        ),
        (lambda redis, keys: redis.hincrby(keys.meta, "chunks", -1), "nothing acknowledged is lost", "are gone"),
        (lambda redis, keys: redis.hset(keys.meta, "epoch", "other"), "nothing acknowledged is lost", "another epoch"),
    ],
)
def test_fault_in_redis_is_found(
    audit: Audit, fleet: Fleet, client: RedisClient, fault: Callable[..., Any], name: str, wrong: str
) -> None:
    fleet.send(0.0)
    for outbox in fleet.outboxes:
        outbox.put(fleet.contract, [fleet.chunk])
        outbox.push(timeout_s=5, is_limited=False)
    assert audit.look()
    assert broken(audit) == {}
    fault(client.redis, client.shard_keys())
    assert audit.look()
    assert wrong in broken(audit)[name]


def test_emptied_redis_has_nothing_of_the_run_and_all_of_others(
    audit: Audit, fleet: Fleet, client: RedisClient, redis_server: Any
) -> None:
    client.redis.set(f"surreal:{{{client.run}-other}}:config", "kept")
    try:
        sent = fleet.send(0.05)

        def look_and(then: Any) -> None:
            audit.expect_emptying(client)
            audit.look_at(client, then)

        Flush("Redis", client, look_and).begin()
        assert list(client.scan(f"surreal:{{{client.run}*")) == [f"surreal:{{{client.run}-other}}:config".encode()]
        assert audit.standing.steps == sum(sent.chunks) * CARTPOLE["chunk_steps"]  # seen at the last instant
        fleet.send(0.0)
        for outbox in fleet.outboxes:
            outbox.put(fleet.contract, [fleet.chunk])
            outbox.push(timeout_s=5, is_limited=False)
        assert audit.look()
        assert audit.was_emptied
        assert "the global step is exact" not in broken(audit)
        assert any("emptied" in text for verdict in audit.verdicts() for text in verdict.not_promised)
    finally:
        client.redis.delete(f"surreal:{{{client.run}-other}}:config")


def test_blocks_without_a_stream_and_entries_without_a_block_are_found(client: RedisClient, fleet: Fleet) -> None:
    stream = Stream(client)
    for outbox in fleet.outboxes:
        outbox.put(fleet.contract, [fleet.chunk])
        outbox.push(timeout_s=5, is_limited=False)
    assert judge_blocks([stream]).holds
    client.redis.set(stream.keys.block("nobody-1"), "x")
    client.redis.delete(stream.keys.block(f"{fleet.outboxes[0].sender_id}-1"))
    assert judge_blocks([stream]).violations == (
        "1 blocks are in no stream: no process will remove them",
        "1 chunks of the streams have no block",
    )
    assert len(judge_keys([client]).violations) >= 3
    client.delete_run()
    assert judge_keys([client]).holds


@pytest.mark.parametrize("is_ours", [True, False])
def test_killed_process_of_the_launcher_keeps_no_keys_and_any_other_does(
    client: RedisClient, tmp_path: Path, is_ours: bool
) -> None:
    """Its heartbeat looks alive for some seconds after its death."""
    telemetry = Telemetry(client, "agent", "agent-0")
    telemetry.step()
    with ExitStack() as stack:
        servers = RunServers(load_config("cartpole-dqn"), client.run, tmp_path, client.address, stack)
        servers.clear(ended={os.getpid()} if is_ours else {1})
    assert judge_keys([client]).holds is is_ours


# -- what is done -----------------------------------------------------------------------------------------------------


def test_full_redis_takes_nothing_until_it_is_healed(start_redis: Callable[..., Any]) -> None:
    server = start_redis(maxmemory="64mb")
    with RedisClient(server.address, run="full") as client:
        stored = Server(client, Keeps.NOTHING, None, lambda: None, is_exclusive=True)
        assert stored.refusal(Kind.FULL) == ""
        assert "no process would start" in stored.refusal(Kind.RESTART)
        full = Full("Redis", client, hold_s=1.0)
        full.begin()
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            client.redis.set("key", "value")
        ballast = list(client.scan("*ballast*"))
        assert all(0 < client.redis.pttl(key) <= 6000 for key in ballast) and ballast  # it ends without us, too
        full.turn()
        full.end()
        full.end()
        assert client.redis.set("key", "value")
        assert list(client.scan("*ballast*")) == []


def test_server_that_others_use_is_not_killed_or_filled(client: RedisClient) -> None:
    shared = Server(client, Keeps.ALL, lambda: 1, lambda: None, is_exclusive=False)
    assert [bool(shared.refusal(kind)) for kind in (Kind.RESTART, Kind.FULL, Kind.CUT, Kind.FLUSH, Kind.KILL)] == [
        True, True, True, False, False,
    ]  # fmt: skip


def test_only_what_was_asked_for_by_name_empties_the_redis_of_somebody_elses_run(client: RedisClient) -> None:
    server = Server(client, Keeps.NOTHING, lambda: 1, lambda: None, is_exclusive=True)
    subject = Subject(
        "a run", load_config("cartpole-dqn"), None, client, ReplayShards(client), client, [server], is_new=False,
        can_kill=False,
    )  # fmt: skip
    asked, said = ChaosOptions((Kind.KILL, Kind.PAUSE, Kind.RESTART)), list[str]()
    assert only_possible(subject, replace(asked, is_default=True), said.append).kinds == (Kind.PAUSE,)
    assert [line.partition(":")[0] for line in said] == ["without kill", "without restart"]
    with pytest.raises(ConfigError, match="cannot be disturbed by kill: no process would start its processes again"):
        only_possible(subject, asked, said.append)
    by_name = ChaosOptions((Kind.RESTART,))
    assert only_possible(subject, by_name, said.append) == by_name


@pytest.mark.parametrize("port", [None, 0])
def test_cut_breaks_the_connections_of_the_run(start_redis: Callable[..., Any], port: int | None) -> None:
    server = start_redis(port=port)
    with RedisClient(server.address) as ours, server.client() as theirs:
        theirs.ping()
        before = theirs.client_id()
        # Over TCP they are found by the ports of the run's processes, of which this is one: ours is found, too.
        cut = Cut("Redis", ours, is_exclusive=port is None, pids=lambda: [os.getpid()])
        cut.begin()
        cut.turn()
        theirs.ping()
        assert theirs.client_id() != before
        assert cut.detail.endswith(" connections") and cut.detail != "0 connections"


def test_paused_process_goes_on_at_the_end(sleeper: subprocess.Popen[bytes]) -> None:
    with Guard() as guard:
        pause = Pause(life_of(sleeper), guard)
        pause.begin()
        wait_for(lambda: psutil.Process(sleeper.pid).status() == psutil.STATUS_STOPPED, "the pause")
        pause.end()
        wait_for(lambda: psutil.Process(sleeper.pid).status() != psutil.STATUS_STOPPED, "its end")


@pytest.mark.parametrize(("is_over", "code"), [(False, 1), (True, 0)])
def test_a_process_gets_no_further_memory_until_the_end(is_over: bool, code: int) -> None:
    program = "print('ready', flush=True); input(); bytearray(1 << 28)"
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        starve = Starve([life_of(process)])
        starve.begin()
        if is_over:
            starve.end()
        _, error = process.communicate("\n")
        assert (process.returncode, "MemoryError" in error) == (code, not is_over)
        starve.end()


def test_paused_process_goes_on_when_chaos_is_killed(sleeper: subprocess.Popen[bytes]) -> None:
    code = (
        "import sys, time; from surreal.plugins.chaos.disturbances.processes import Guard; import os, signal\n"
        "guard = Guard().__enter__(); pid = int(sys.argv[1])\n"
        "guard.open(signal.SIGCONT, pid); os.kill(pid, signal.SIGSTOP); print('paused', flush=True); time.sleep(60)"
    )
    chaos = subprocess.Popen([sys.executable, "-c", code, str(sleeper.pid)], stdout=subprocess.PIPE, cwd=ROOT)
    with chaos:
        assert chaos.stdout is not None and chaos.stdout.readline() == b"paused\n"
        wait_for(lambda: psutil.Process(sleeper.pid).status() == psutil.STATUS_STOPPED, "the pause")
        chaos.kill()
    wait_for(lambda: psutil.Process(sleeper.pid).status() != psutil.STATUS_STOPPED, "the guard's help")


def test_process_that_has_the_id_of_another_is_not_hit(sleeper: subprocess.Popen[bytes]) -> None:
    assert find_process(life_of(sleeper)).pid == sleeper.pid
    with pytest.raises(NotDoneError, match="is gone, or another user's"):  # its heartbeat is older than the process
        find_process(life_of(sleeper, age_s=time.time()))
    with pytest.raises(NotDoneError, match="not a process of this machine"):
        Kill(life_of(sleeper)._replace(is_here=False)).begin()
    Kill(life_of(sleeper)).begin()
    assert sleeper.wait(10) == -signal.SIGKILL
    with pytest.raises(NotDoneError, match="is gone"):
        Kill(life_of(sleeper)).begin()


def test_process_that_is_left_behind_is_found(sleeper: subprocess.Popen[bytes]) -> None:
    book = ProcessBook()
    book.note_lives([life_of(sleeper)])
    left = book.judge(within_s=0.1)
    assert left.violations == (f"process {sleeper.pid} still runs: sleep 60",)
    assert book.judge(spared=[sleeper.pid], within_s=0.1).holds
    sleeper.kill()
    sleeper.wait()
    assert book.judge(within_s=5.0).holds
