"""From a client to the learner's replay: what becomes transitions, and what does not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from surreal.agent import AgentLoop
from surreal.base.types import Action
from surreal.config import Config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.sender import ExpSender
from surreal.replay import UniformReplay
from surreal.rlx import AgentProxy
from surreal.rlx.client.gym_driver import DriverOptions, run_envs
from surreal.rlx.pool.held_steps import HeldSteps
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.server.admission import Admission
from surreal.rlx.server.server import RlxServer
from surreal.rlx.server.settings import ServerSettings
from surreal.run.build.environments import build_spaces
from surreal.run.build.rlx_server import ServerOptions, build_rlx_pool

SPACE = spaces.Box(-np.inf, np.inf, (2,), np.float32)


class Zero:
    """An agent that does nothing."""

    global_step: int | None = None
    wants_outcomes = False
    model = None

    def act_batch(self, obs: Any, *_: Any) -> Action:
        return Action(np.zeros(len(obs), np.int64), {}, 1)


class Path:
    """Server, loop, sender and replay of one run."""

    def __init__(self, redis_address: str, run: str, pool: RlxEnvPool | None = None) -> None:
        self.client = RedisClient(redis_address, run=run)
        self.pool = pool or RlxEnvPool(spaces.Discrete(2), SPACE)
        self.sender = ExpSender(self.client, chunk_steps=1, max_delay_s=0.01)
        self.held = HeldSteps(self.sender, self.pool.take_final)
        loop: Any = AgentLoop(self.pool, Zero(), self.held)  # type: ignore[arg-type]
        self.server = RlxServer(self.pool, ServerSettings(port=0, admission=Admission(None, 0), max_amend_s=1000.0))
        self.server.start()
        self._loop = loop
        self._stop = threading.Event()
        self._thread = threading.Thread(target=loop.run, args=(self._stop,))
        self._thread.start()

    @property
    def port(self) -> int:
        return self.server.port

    def finish(self) -> list[tuple[float, float, float, float]]:
        """End everything; returns (obs, reward, discount, next obs) of all transitions in the replay, sorted."""
        self.server.close()
        self._stop.set()
        self._thread.join(60)
        for _ in range(3):
            self._loop.step(0.01)
        self.held.release()
        assert self.sender.close()
        replay = UniformReplay(self.client, batch_size=64, start_size=1, gamma=0.5)
        replay.start_threads()
        try:
            found = set()
            for _ in range(20):
                batch = replay.dequeue(60.0)
                if batch is None:
                    break
                columns = (batch.obs[:, 0], batch.reward, batch.discount, batch.next_obs[:, 0])
                found |= set(zip(*(column.tolist() for column in columns), strict=True))
            return sorted(found)
        finally:
            replay.stop()
            replay.join()


@pytest.fixture
def path(redis_server: Any, run_id: str) -> Iterator[Path]:
    made = Path(redis_server.address, run_id)
    yield made
    made.server.close()
    made.client.close()


def test_dropped_connection_leaves_no_transition_that_crosses_it(path: Path, wire: Any) -> None:
    first = wire(path)
    first.init()
    for value in (1, 2, 3):
        first.update([value, 0], None if value == 1 else 10.0 * value)
    first.close()
    second = wire(path)
    second.init()
    for value in (101, 102):
        second.update([value, 0], None if value == 101 else 0.5)
    second.update([103, 0], 0.25, terminal=True)
    # 3 -> ? was never finished, 102 -> 103 is an end.
    assert path.finish() == [(1, 20.0, 0.5, 2), (2, 30.0, 0.5, 3), (101, 0.5, 0.5, 102), (102, 0.25, 0.0, 103)]


def test_reset_leaves_no_transition_that_crosses_it(path: Path, wire: Any) -> None:
    client = wire(path)
    client.init()
    client.update([1, 0])
    client.update([2, 0], 1.0)
    assert client.ask(command="reset")["response"] == "done"
    client.update([11, 0])
    client.update([12, 0], 2.0, terminal=True, truncated=True)
    assert path.finish() == [(1, 1.0, 0.5, 2), (11, 2.0, 0.5, 12)]


def test_exploiting_session_sends_nothing(path: Path, wire: Any) -> None:
    exploiting, training = wire(path), wire(path)
    exploiting.ask(command="init", exploit=True)
    training.init()
    for value in (1, 2, 3):
        reward = None if value == 1 else 1.0
        exploiting.update([1000 + value, 0], reward)
        training.update([value, 0], reward)
    assert path.finish() == [(1, 1.0, 0.5, 2), (2, 1.0, 0.5, 3)]


def test_amended_rewards_are_in_the_replay_and_an_episode_may_be_judged_after_its_end(path: Path, wire: Any) -> None:
    other = wire(path)
    other.init()
    with AgentProxy(("127.0.0.1", path.port)) as agent:
        agent.connect()
        agent.init()
        agent.update(None, [1, 0])
        agent.update(0.0, [2, 0], amend_within_s=500)
        step, _ = agent.step_id, agent.update(0.25, [3, 0])
        assert agent.step_id is None
        agent.update(0.0, [4, 0], terminal=True, amend_within_s=500)
        end, _ = agent.step_id, agent.update(None, [5, 0])
        agent.update(0.0, [6, 0], terminal=True, amend_within_s=500)  # never judged
    for value in (101, 102):
        other.update([value, 0], None if value == 101 else 0.5)
    with AgentProxy(("127.0.0.1", path.port)) as agent:  # after a lost connection
        agent.connect()
        agent.init()
        assert agent.amend(end, reward=7.0)
        assert not agent.amend(end, reward=8.0)  # what was accepted is final
        assert agent.amend(step, reward=[2.0, 3.0])
    metrics = path.server.metrics()
    assert metrics["rlx/amended_rewards_total"] == 2
    assert metrics["rlx/refused_amendments_total"] == 1
    expected = [(1, 5.0, 0.5, 2), (2, 0.25, 0.5, 3), (3, 7.0, 0.0, 4), (5, 0.0, 0.0, 6), (101, 0.5, 0.5, 102)]
    assert path.finish() == expected


class Tenfold(gymnasium.ObservationWrapper[Any, Any, Any]):
    """A user's wrapper."""

    def observation(self, obs: Any) -> Any:
        return obs * 10


WRAPPED = {
    "env": {
        "id": "Elsewhere",
        "observation_space": {"type": "box", "shape": [2, 1]},
        "action_space": {"type": "discrete", "n": 2},
        "wrappers": [{"name": "flatten"}, {"class": f"{__name__}.Tenfold"}, {"name": "reward_clip"}],
    }
}


def test_wrappers_of_the_configuration_are_applied_by_the_server(redis_server: Any, run_id: str, wire: Any) -> None:
    pool = build_rlx_pool(Config.model_validate(WRAPPED), ServerOptions())
    path = Path(redis_server.address, run_id, pool)
    assert pool.obs_spec == build_spaces(Config.model_validate(WRAPPED)).obs_spec
    exploiting, training = wire(path), wire(path)
    exploiting.ask(command="init", exploit=True)
    training.init()
    for client, factor in ((training, 1.0), (exploiting, 100.0)):
        client.update([[1], [0]])
        client.update([[2], [0]], 5.0 * factor)
        client.update([[3], [0]], -7.0 * factor, terminal=True)
    assert training.ask(command="update", reward=None, state=[10, 20, 30])["message"].startswith(
        "the state must have shape (2, 1)"
    )
    # What is learned from is clipped; what counts as the episode's return is not.
    assert path.finish() == [(10, 1.0, 0.5, 20), (20, -1.0, 0.0, 30)]
    assert pool.metrics()["env/episode_return_recent"] == -101.0


class Corridor(gymnasium.Env[Any, Any]):
    """Walks on for ever: observation is the number of the step."""

    observation_space = SPACE
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = 0
        return np.zeros(2, np.float32), {}

    def step(self, _: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place += 1
        return np.full(2, self.place, np.float32), 1.0, False, False, {}


def test_time_limit_of_a_client_bootstraps(path: Path) -> None:
    make = lambda: gymnasium.wrappers.TimeLimit(Corridor(), 3)  # noqa: E731
    run_envs([make], DriverOptions(f"127.0.0.1:{path.port}", episodes=2, attempts=1))
    assert path.finish() == [(0, 1.0, 0.5, 1), (1, 1.0, 0.5, 2), (2, 1.0, 0.5, 3)]
