"""Compare Surreal's agent loop and learner with bare loops over the same environment, network and update.

    python -m benchmarks.overhead [--rounds N] [--seconds S]

* agent: `AgentLoop` with a `QAgent`, which sends everything to a Redis server on the other core. The baseline is the
  same environment and network without recording. The policy balances the pole, in 16 gymnasium CartPoles in a
  SyncVectorEnv, and in gymnasium's native vector CartPole.
* learner: `DQNLearner` on batches of a `UniformReplay` (mirrored from Redis, gathered by its thread). The baseline is
  the same update on tensors in memory. Batch 256, an MLP of 2 x 256, one torch thread on both sides.
"""

from __future__ import annotations

import argparse
import time
import uuid

import numpy as np
import torch

from benchmarks.alone import alone
from benchmarks.baselines.bare_agent import BareAgent, balance, make_env
from benchmarks.baselines.bare_learner import BareLearner
from benchmarks.harness import alternate, report
from benchmarks.transport import make_batch
from surreal.agent import QAgent
from surreal.agent.loop import AgentLoop
from surreal.base.schedules import ConstantSchedule
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.sender import ExpSender
from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.envs import LocalEnvPool
from surreal.learner import DQNLearner
from surreal.model import QFunction
from surreal.replay import UniformReplay

NUM_ENVS, HIDDEN, EPSILON = 16, 64, 0.05
BATCH, WIDTH, STORED = 256, 256, 50_000


def agent(address: str, mode: str, aim: float, rounds: int, seconds: float) -> None:
    client = RedisClient(address, run=f"agent-{uuid.uuid4().hex[:8]}")
    pool = LocalEnvPool(make_env(mode, NUM_ENVS), seed=0)
    model = QFunction(hiddens=[HIDDEN, HIDDEN], action_space=2)
    model.materialize(pool.obs_spec)
    balance([layer for layer in model.modules() if isinstance(layer, torch.nn.Linear)])
    sender = ExpSender(client, obs_spec=pool.obs_spec)
    loop = AgentLoop(pool, QAgent(model, ConstantSchedule(EPSILON)), sender)
    bare = BareAgent(mode, NUM_ENVS, HIDDEN, EPSILON)

    def ours() -> float:
        steps, started_s = loop.env_steps, time.perf_counter()
        while time.perf_counter() - started_s < seconds:
            for _ in range(100):
                loop.step()
        sender.flush()
        rate = (loop.env_steps - steps) / (time.perf_counter() - started_s)
        client.delete_run()  # there is no learner, so the stream would grow
        return rate

    def theirs() -> float:
        steps, started_s = 0, time.perf_counter()
        while time.perf_counter() - started_s < seconds:
            bare.run(100)
            steps += 100 * NUM_ENVS
        return steps / (time.perf_counter() - started_s)

    mine, floor = alternate(ours, theirs, rounds)
    report(f"agent loop, CartPole {mode}", "env steps/s", mine, floor, aim=aim, environments=NUM_ENVS)
    sender.close()
    pool.close()
    client.delete_run()


def learner(address: str, rounds: int, seconds: float) -> None:
    client = RedisClient(address, run=f"learner-{uuid.uuid4().hex[:8]}")
    batch, action = make_batch((4,), np.float32, 64)
    sender = ExpSender(client)
    for _ in range(STORED // 64 + 64):
        sender.send_batch(batch, action)
    sender.close()
    replay = UniformReplay(client, batch_size=BATCH, capacity=STORED, start_size=STORED // 2)
    dqn = DQNLearner(QFunction(hiddens=[WIDTH, WIDTH], action_space=2), replay)
    replay.start_threads()
    batches = replay.batch_iterator()
    dqn.optimize(*next(batches))
    bare = BareLearner(WIDTH, BATCH, STORED)

    def ours() -> float:
        updates, started_s = dqn.updates, time.perf_counter()
        for i, sampled in batches:
            dqn.optimize(i, sampled)
            if time.perf_counter() - started_s >= seconds:
                break
        return (dqn.updates - updates) / (time.perf_counter() - started_s)

    def theirs() -> float:
        updates, started_s = bare.updates, time.perf_counter()
        while time.perf_counter() - started_s < seconds:
            bare.run(10)
        return (bare.updates - updates) / (time.perf_counter() - started_s)

    mine, floor = alternate(ours, theirs, rounds)
    report("learner, DQN", "updates/s", mine, floor, aim=0.9, batch=BATCH, network=f"2 x {WIDTH}")
    replay.stop()
    replay.join()
    client.delete_run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a round")
    args = parser.parse_args()
    torch.set_num_threads(1)
    with EmbeddedRedis(maxmemory_bytes=1 << 30) as server:
        agent(server.address, "sync", 0.85, args.rounds, args.seconds)
        agent(server.address, "vector_entry_point", 0.75, args.rounds, args.seconds)
        learner(server.address, args.rounds, args.seconds)


if __name__ == "__main__":
    with alone():
        main()
