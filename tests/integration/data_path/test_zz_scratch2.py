from __future__ import annotations
import os, signal, threading, time, subprocess, sys
from typing import Any
import numpy as np, pytest
from naive_replay import wait_until
from test_shards import Agent, make_replay, make_shards, stack, steps_of, rewards, fill
from surreal.replay import *
from surreal.errors import *

def test_claim_all_away(start_redis, make_shards, stack):
    servers = [start_redis(port=0, appendonly=True) for _ in range(2)]
    ad = [s.address for s in servers]
    agents = [Agent(make_shards(*ad), n) for n in range(2)]
    for a in agents: a.step(11); a.flush()
    for s in servers: s.kill()
    replay = make_replay(stack, make_shards(*ad), lease_s=0.1)
    replay.start_threads()
    threading.Event().wait(2.0)
    replay.check()
    for s in servers: s.start()
    assert replay.dequeue(10) is not None

def test_export_dead(start_redis, make_shards, stack, tmp_path, run_id):
    servers = [start_redis(port=0, appendonly=True) for _ in range(2)]
    ad = [s.address for s in servers]
    agents = [Agent(make_shards(*ad), n) for n in range(2)]
    for a in agents: a.step(11); a.flush()
    for how in ("kill", "hang"):
        if how == "kill": servers[1].kill()
        else:
            servers[1].start(); os.kill(servers[1].pid, signal.SIGSTOP)
        for cmd in (["export", run_id, str(tmp_path / "x")], ["info", run_id], ["import", str(tmp_path / "y"), run_id]):
            t0 = time.monotonic()
            try:
                p = subprocess.run([sys.executable, "-m", "surreal", "replay", *cmd, "--redis", " ".join(ad)], capture_output=True, text=True, timeout=60)
                print(how, cmd[0], p.returncode, round(time.monotonic() - t0, 1), p.stdout[-300:], p.stderr[-300:])
            except subprocess.TimeoutExpired:
                print(how, cmd[0], "TIMEOUT")
    os.kill(servers[1].pid, signal.SIGCONT)

def test_fifo_marks(start_redis, make_shards, stack):
    "A shard dies between download of its first chunk and the reading of its marks."
    servers = [start_redis(port=0, appendonly=True) for _ in range(2)]
    ad = [s.address for s in servers]
    agents = [Agent(make_shards(*ad), n) for n in range(2)]
    for a in agents: a.step(41); a.flush()
    replay = make_replay(stack, make_shards(*ad), FIFOReplay, batch_size=2, trajectory_steps=5)
    replay.owner.claim()
    wait_until(lambda: (replay.pointer_queue.enqueue_step(), all(len(q) >= 4 for q in replay.pointer_queue.queues))[-1])
    servers[1].kill()
    replay.start_threads()
    got = 0
    end = time.monotonic() + 5
    while got < 4 and time.monotonic() < end:
        got += replay.dequeue(0.2) is not None
        replay.commit()
    print(got)
    assert got == 4
