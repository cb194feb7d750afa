from __future__ import annotations
import os, signal, threading, time
from typing import Any
import numpy as np, pytest
from naive_replay import wait_until
from test_shards import Agent, make_replay, make_shards, stack, steps_of, rewards, fill
from surreal.replay import *
from surreal.errors import *

def run_agent(agent, stop):
    def act():
        while not stop.is_set():
            try:
                agent.step(5)
                agent.sender.flush_due()
            except StoppedError:
                return
    t = threading.Thread(target=act, daemon=True); t.start(); return t

@pytest.mark.parametrize("first", [False, True])
def test_large_chunks(redis_server, make_shards, stack, first):
    shards = make_shards(redis_server.address, num_shards=4)
    replay = make_replay(stack, shards, start_size=20, samples_per_insert=1.0, samples_per_insert_tolerance=40.0, batch_size=8)
    stop = threading.Event()
    if first:
        a = Agent(make_shards(redis_server.address, num_shards=4), 0, is_limited=True, chunk_steps=5, stop=stop)
        replay.start_threads()
        for _ in range(4): a.step(5); a.flush()
    else:
        replay.start_threads()
    agents = [Agent(make_shards(redis_server.address, num_shards=4), n, is_limited=True, chunk_steps=40, stop=stop) for n in range(4)]
    ts = [run_agent(a, stop) for a in agents]
    try:
        end = time.monotonic() + 8
        got = 0
        while time.monotonic() < end and got < 40:
            got += replay.dequeue(0.2) is not None
        print("batches", got, steps_of(shards))
        assert got == 40
    finally:
        stop.set()
        for t in ts: t.join(5)

def pause(server): os.kill(server.pid, signal.SIGSTOP)
def cont(server): os.kill(server.pid, signal.SIGCONT)

def test_home_back_current_dead(start_redis, make_shards, stack):
    servers = [start_redis(port=0, appendonly=True) for _ in range(2)]
    shards = make_shards(*(s.address for s in servers))
    agent = Agent(shards, 1)
    agent.step(11); agent.flush()
    servers[1].kill()
    agent.step(20); agent.flush()
    assert agent.sender.outbox._current == 0
    servers[1].start()
    wait_until(lambda: agent.sender.outbox._are_back)
    servers[0].kill()
    agent.step(20); agent.flush()
    assert agent.sender.outbox._current == 1
    servers[0].start(); wait_until(lambda: 0 in agent.sender.outbox._are_back)
    assert agent.sender.close()
    assert sum(steps_of(shards)) == 50
    assert agent.sender.metrics()["sender/dropped_chunks"] == 0
    wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith("sender/")])

@pytest.mark.parametrize("observations", ["mirrored", "remote"])
def test_hang(start_redis, make_shards, stack, observations):
    servers = [start_redis(port=0) for _ in range(2)]
    ad = [s.address for s in servers]
    replay = make_replay(stack, make_shards(*ad, timeout_s=0.5), observations=observations, prefetch=1)
    follower = make_replay(stack, make_shards(*ad, timeout_s=0.5), observations=observations, is_owner=False)
    agents = [Agent(make_shards(*ad, timeout_s=0.5), n) for n in range(2)]
    for a in agents: a.step(51); a.flush()
    replay.start_threads(); follower.start_threads()
    assert replay.dequeue(20) is not None and follower.dequeue(20) is not None
    wait_until(lambda: len(replay) == 100 and len(follower) == 100)
    pause(servers[1])
    t0 = time.monotonic()
    try:
        for a in agents: a.step(50); a.flush()
        print("flushed", time.monotonic() - t0)
        kept = agents[1].sender.metrics()["sender/kept_chunks"]
        for r in (replay, follower):
            wait_until(lambda: r.metrics()["replay/shards_away"] == 1)
            wait_until(lambda: len(r) >= 200 - 10 * kept)
            t0 = time.monotonic()
            for _ in range(20): assert r.dequeue(20) is not None
            print("20 batches", time.monotonic() - t0)
    finally:
        cont(servers[1])
    wait_until(lambda: replay.metrics()["replay/shards_away"] == 0 and follower.metrics()["replay/shards_away"] == 0)
    def home():
        agents[1].step(10); agents[1].flush()
        return agents[1].sender.metrics()["sender/shard_changes"] == 2
    wait_until(home)
    assert agents[1].sender.metrics()["sender/kept_chunks"] == 0
    for r in (replay, follower):
        wait_until(lambda: len(r) == sum(a.next - 1 - 1_000_000 * n for n, a in enumerate(agents)))
        assert len(set(rewards(r))) == len(r)
        wait_until(lambda: r.global_step == len(r))
    print(agents[1].sender.metrics(), replay.metrics())
    for a in agents: assert a.sender.close()

@pytest.mark.parametrize("how", ["kill", "hang"])
@pytest.mark.parametrize("observations", ["mirrored", "remote"])
def test_all_away(start_redis, make_shards, stack, observations, how):
    servers = [start_redis(port=0, appendonly=True) for _ in range(2)]
    ad = [s.address for s in servers]
    replay = make_replay(stack, make_shards(*ad, timeout_s=0.5), observations=observations)
    agents = [Agent(make_shards(*ad, timeout_s=0.5), n) for n in range(2)]
    for a in agents: a.step(51); a.flush()
    replay.start_threads()
    wait_until(lambda: len(replay) == 100)
    for s in servers: s.kill() if how == "kill" else pause(s)
    done = []
    def go(a):
        a.step(50); a.flush(); done.append(1)
    ts = [threading.Thread(target=go, args=(a,), daemon=True) for a in agents]
    for t in ts: t.start()
    wait_until(lambda: (replay.dequeue(0.05), replay.metrics()["replay/shards_away"] == 2)[-1])
    c0, t0 = time.process_time(), time.monotonic()
    time.sleep(2)
    print("cpu share while away", (time.process_time() - c0) / (time.monotonic() - t0))
    if observations == "remote":
        while replay.dequeue(0.3) is not None: pass
    replay.check()
    for s in servers: s.start() if how == "kill" else cont(s)
    for t in ts: t.join(20)
    assert done == [1, 1]
    wait_until(lambda: (replay.dequeue(0.05), len(replay) == 200)[-1])
    assert replay.dequeue(20) is not None
    for a in agents:
        assert a.sender.close()
    assert len(set(rewards(replay))) == len(replay)

def test_foreign(start_redis, make_shards, stack):
    servers = [start_redis(port=0, appendonly=True) for _ in range(3)]
    ad = [s.address for s in servers]
    replay = make_replay(stack, make_shards(*ad), shards=[0, 1])
    agents = [Agent(make_shards(*ad), n) for n in range(3)]
    for a in agents: a.step(11); a.flush()
    replay.start_threads()
    wait_until(lambda: replay.global_step == 30)
    servers[2].kill()
    wait_until(lambda: replay.streams[0].client and replay.owner._foreign[0].stream.client.is_away)
    import surreal.replay.keeper as kk; kk._AWAY_INTERVAL_S = 0.5
    servers[2].start()
    agents[2].step(10); agents[2].sender.outbox.push(timeout_s=10, is_limited=False); agents[2].flush()
    wait_until(lambda: replay.global_step == 40)

def test_close_hung(start_redis, make_shards, stack):
    servers = [start_redis(port=0) for _ in range(2)]
    ad = [s.address for s in servers]
    agent = Agent(make_shards(*ad, timeout_s=1.0), 1)
    other = make_shards(*ad)
    agent.step(11); agent.flush()
    pause(servers[1])
    agent.step(35)
    t0 = time.monotonic()
    ok = agent.sender.close(timeout_s=1.0)
    print("close", ok, time.monotonic() - t0, agent.sender.metrics())
    cont(servers[1])
    print(steps_of(other))
    wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith("sender/")])

def staged(server):
    with server.client() as c: return [k for k in c.scan_iter(match="*staged*")]

def test_maxmemory(start_redis, make_shards, stack):
    servers = [start_redis(port=0, maxmemory="6mb"), start_redis(port=0)]
    ad = [s.address for s in servers]
    agent = Agent(make_shards(*ad), 0, chunk_steps=1000, wait_timeout_s=0.5, max_stream_bytes=1 << 30)
    agent.sender.outbox._boxes[0]._bound_bytes = 1 << 30  # the bound does not hold it back, memory does
    other = Agent(make_shards(*ad), 1)
    try:
        for _ in range(2000):
            agent.step(100)
    except ReplayFullError as e:
        print(e)
    print("staged", staged(servers[0]), steps_of(make_shards(*ad)), agent.sender.metrics())
    other.step(101); other.flush()
    print(steps_of(make_shards(*ad)))
    replay = make_replay(stack, make_shards(*ad), capacity=1000, batch_size=8)
    replay.start_threads()
    n = agent.sender.metrics()["sender/steps"]
    wait_until(lambda: len(replay) <= 1100 and len(replay) > 0)
    agent.sender._wait_timeout_s = 20
    agent.step(3000); agent.flush()
    assert replay.dequeue(5) is not None
    wait_until(lambda: not staged(servers[0]))
    wait_until(lambda: abs(replay.global_step - (agent.next - 1 + 100)) <= 1)

def test_refused_leaves_nothing(redis_server, make_shards, stack):
    shards = make_shards(redis_server.address, num_shards=2)
    replay = make_replay(stack, shards, start_size=20, samples_per_insert=1.0, samples_per_insert_tolerance=40.0)
    fill(replay, 0)
    agent = Agent(shards, 0, is_limited=True, wait_timeout_s=0.3, chunk_steps=1000)
    agent.step(500)
    with pytest.raises(ReplayFullError): agent.flush()
    c = shards.clients[0].redis
    assert not list(c.scan_iter(match=f"*{shards.run}*staged*"))
    assert not list(c.scan_iter(match=f"*{shards.run}*block*"))
