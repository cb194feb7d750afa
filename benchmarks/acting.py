"""The time that acting takes with a small network: in torch, and in NumPy on the memory of its parameters.

    python -m benchmarks.acting [--rounds N] [--seconds S]

* pass: the forward pass of a model on 8 rows of 4 numbers, by `surreal.model.in_numpy` against torch.
* turn: a turn of `AgentLoop` with 8 CartPoles, whose steps were recorded before: the agent acts, and `ExpSender`
  records and sends to a Redis on the other core. One side acts in NumPy, the other in torch.
"""

from __future__ import annotations

import argparse
import copy
import time
import uuid
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray

from benchmarks.alone import alone
from benchmarks.harness import alternate, report
from surreal.agent import Agent, AgentLoop, PolicyAgent, QAgent
from surreal.base.specs import ObsSpec
from surreal.base.types import StepBatch
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.sender import ExpSender
from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.envs import LocalEnvPool
from surreal.model import ActorCritic, Model, QFunction
from surreal.model.in_numpy import NumpyPass

ROWS, TURNS = 8, 500
TWO, BOX = spaces.Discrete(2), spaces.Box(-1.0, 1.0, (6,), np.float32)
MODELS: dict[str, Callable[[], Model]] = {
    "policy and value, 2 x 64": lambda: ActorCritic(action_space=TWO),
    "policy and value, LSTM": lambda: ActorCritic(action_space=TWO, use_lstm=True),
    "Q values, 2 x 64": lambda: QFunction(action_space=TWO),
    "normal, 2 x 256": lambda: ActorCritic([256, 256], action_space=BOX),
}
AGENTS: dict[str, Callable[[], Agent]] = {
    "PolicyAgent": lambda: PolicyAgent(ActorCritic(action_space=TWO)),
    "PolicyAgent, LSTM": lambda: PolicyAgent(ActorCritic(action_space=TWO, use_lstm=True)),
    "QAgent": lambda: QAgent(QFunction(action_space=TWO)),
}


class RecordedPool(LocalEnvPool):
    """Gives the turns that random actions made, again and again, and takes no time for them."""

    def __init__(self) -> None:
        super().__init__([lambda: gymnasium.make("CartPole-v1")] * ROWS, seed=0)
        rng, self._turns = np.random.default_rng(0), list[StepBatch]()
        for _ in range(TURNS):
            self._turns.append(copy.deepcopy(super().recv()))
            super().send(rng.integers(2, size=ROWS), np.arange(ROWS))
        self._next = 0

    def recv(self, timeout_s: float = 1.0) -> StepBatch:
        batch = self._turns[self._next]
        self._next = (self._next + 1) % TURNS
        return batch

    def send(self, actions: NDArray[Any], env_ids: NDArray[np.int64]) -> None:
        pass


def rate(call: Callable[[], object], seconds: float) -> float:
    """Calls per second."""
    calls, started_s = 0, time.perf_counter()
    while time.perf_counter() - started_s < seconds:
        for _ in range(100):
            call()
        calls += 100
    return calls / (time.perf_counter() - started_s)


def one_pass(name: str, rounds: int, seconds: float) -> None:
    model, obs = MODELS[name](), np.random.default_rng(0).normal(size=(ROWS, 4)).astype(np.float32)
    model.materialize(ObsSpec.from_obs(obs[0]))
    in_numpy, tensor = NumpyPass.of(model), torch.from_numpy(obs)
    assert in_numpy is not None
    state = () if model.state_shape is None else (torch.zeros(ROWS, *model.state_shape),)
    arrays = [each.numpy() for each in state]
    with torch.inference_mode():
        found = alternate(
            lambda: rate(lambda: in_numpy(obs, *arrays), seconds),
            lambda: rate(lambda: model(tensor, *state), seconds),
            rounds,
        )
    report(f"forward pass, {name}", "passes/s", *found, aim=None, rows=ROWS)


def turn(address: str, name: str, rounds: int, seconds: float) -> None:
    """Compare turns of one agent whose forward pass is exchanged."""
    client = RedisClient(address, run=f"acting-{uuid.uuid4().hex[:8]}")
    pool, agent = RecordedPool(), AGENTS[name]()
    agent.model.materialize(pool.obs_spec)
    sender = ExpSender(client, obs_spec=pool.obs_spec)
    loop = AgentLoop(pool, agent, sender)
    agent._chosen_for = agent.model

    def side(forward: NumpyPass | None) -> float:
        agent._numpy = forward
        found = rate(loop.step, seconds)
        sender.flush()
        client.delete_run()  # no process reads, so the stream would grow
        return found

    report(
        f"agent turn, {name}",
        "turns/s",
        *alternate(lambda: side(NumpyPass.of(agent.model)), lambda: side(None), rounds),
        aim=1.0 / 0.65,
        environments=ROWS,
    )
    sender.close()
    client.delete_run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a round")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in MODELS:
        one_pass(name, args.rounds, args.seconds)
    with EmbeddedRedis(maxmemory_bytes=1 << 30) as server:
        for name in AGENTS:
            turn(server.address, name, args.rounds, args.seconds)


if __name__ == "__main__":
    with alone():
        main()
