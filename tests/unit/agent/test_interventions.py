"""Actions that something else than the agent chose, from the environment into the experience."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from surreal.agent import AgentLoop
from surreal.agent.loop import InterventionCounter
from surreal.base.errors import BadValueError, EnvError
from surreal.base.types import Action, StepBatch, StepKind
from surreal.distributed.experience.local import LocalShards
from surreal.distributed.experience.pointer_queue import PointerQueue
from surreal.distributed.experience.sender import ExpSender
from surreal.envs import EnvPool, LocalEnvPool, SubprocEnvPool, WrapperSpec
from surreal.envs.actions import ActionAdapter
from surreal.envs.wrappers.intervention import Intervention
from surreal.envs.wrappers.named import apply_wrappers


class Guarded(gymnasium.Env[Any, Any]):
    """Episodes of five steps, in which odd steps execute 7, whatever the agent (which counts from 5) chose."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(3, start=5)
    executed: Any = 7

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._step = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        info = {"executed_action": self.executed} if self._step % 2 else {}
        self._step += 1
        return np.full(1, self._step, np.float32), 1.0, self._step == 5, False, info


class Zero:
    """An agent that always chooses its first action."""

    class model:  # noqa: N801
        version, scales_rewards = 3, False

    wants_outcomes, global_step = False, None

    def act_batch(self, obs: Any, explore: Any, *_: Any) -> Action:
        return Action(np.zeros(len(explore), np.int64), {"value": np.zeros(len(explore), np.float32)}, 3)

    def metrics(self) -> dict[str, float]:
        return {}


def run(pool: EnvPool, **options: Any) -> tuple[AgentLoop, list[Any]]:
    """Play, and return the chunks that were sent."""
    shards = LocalShards("test")
    sender = ExpSender(shards, obs_spec=pool.obs_spec, chunk_steps=4, interventions=True, **options)
    loop = AgentLoop(pool, Zero(), sender, interventions=True)  # type: ignore[arg-type]
    with pool:
        loop.run(max_env_steps=22)
    sender.close()
    queue = PointerQueue(shards.local)
    while queue.enqueue_step(waits=False):
        pass
    return loop, list(iter(queue.dequeue, None))


ONE_PROCESS = functools.partial(SubprocEnvPool, num_workers=1)


@pytest.mark.parametrize(("kind", "lookahead"), [(LocalEnvPool, 0), (LocalEnvPool, 2), (ONE_PROCESS, 0)])
def test_experience_keeps_what_was_executed(kind: Any, lookahead: int) -> None:
    loop, chunks = run(kind([Guarded] * 2, seed=0, interventions=True), lookahead=lookahead)
    assert sum(chunk.own_steps for chunk in chunks) >= 20
    for chunk in chunks:
        is_odd = chunk.step % 2 == 1
        assert chunk.extras["is_intervention"].tolist() == is_odd.tolist()
        assert chunk.columns["action"].tolist() == np.where(is_odd, 2, 0).tolist()
        assert (chunk.columns["version"] == 3).all()
    metrics = loop.metrics()
    assert metrics["agent/interventions_per_episode"] == 2
    assert metrics["agent/intervention_ratio"] == pytest.approx(0.4)


@pytest.mark.parametrize("executed", [4, 8, 5.5, np.nan, np.zeros(2), "left", None])
def test_an_action_that_cannot_have_been_executed_is_refused(executed: Any) -> None:
    env = Guarded()
    env.executed = executed
    pool = LocalEnvPool([lambda: env], seed=0, interventions=True)
    if executed is None:  # as if the key were not there
        run(pool)
        return
    with pytest.raises(
        EnvError, match=r'Guarded \(environment 0\) gives an info\["executed_action"\].*is not an action'
    ):
        run(pool)


def test_a_restarting_pool_cuts_the_episode_of_an_impossible_action() -> None:
    class Once(Guarded):
        executed = np.inf

        def reset(self, **options: Any) -> Any:
            self.executed = 7 if lost else np.inf
            lost.append(True)
            return super().reset(**options)

    lost: list[bool] = []
    pool = LocalEnvPool([Once], seed=0, interventions=True, on_error="restart")
    _, chunks = run(pool)
    assert pool.metrics()["env/lost_episodes_total"] == 1
    assert {int(action) for chunk in chunks for action in chunk.columns["action"]} == {0, 2}


def test_a_sender_that_records_none_refuses_a_pool_that_reports_some() -> None:
    pool = LocalEnvPool([Guarded], seed=0, interventions=True)
    sender = ExpSender(LocalShards("test"), obs_spec=pool.obs_spec)
    with pytest.raises(ValueError, match="interventions=True"):
        AgentLoop(pool, Zero(), sender).run(max_env_steps=9)  # type: ignore[arg-type]


def test_without_interventions_the_contract_is_as_before() -> None:
    pool, shards = LocalEnvPool([Guarded], seed=0), LocalShards("test")
    sender = ExpSender(shards, obs_spec=pool.obs_spec)
    AgentLoop(pool, Zero(), sender).run(max_env_steps=9)  # type: ignore[arg-type]
    sender.flush()
    assert b"is_intervention" not in (shards.local.contract() or b"")


def test_single_steps_may_be_replaced_too() -> None:
    shards, obs = LocalShards("test"), [np.full(1, i, np.float32) for i in range(4)]
    sender = ExpSender(shards, interventions=True)
    sender.send(obs[0:2], np.zeros(2, np.float32), 0.0, False, {})
    sender.send(obs[1:3], np.zeros(2, np.float32), 0.0, False, {"executed_action": [1.0, 2.0]})
    for wrong in (1.0, [np.nan, 0.0]):
        with pytest.raises((ValueError, BadValueError), match=r"executed_action"):
            sender.send(obs[2:4], np.zeros(2, np.float32), 0.0, False, {"executed_action": wrong})
    sender.close()
    queue = PointerQueue(shards.local)
    queue.enqueue_step(waits=False)
    chunk = queue.dequeue()
    assert chunk is not None
    assert chunk.columns["action"].tolist()[:2] == [[0, 0], [1, 2]]
    assert chunk.extras["is_intervention"].tolist()[:2] == [False, True]


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=5),
        spaces.MultiDiscrete([2, 3], start=[1, -1]),
        spaces.MultiBinary(4),
        spaces.Box(-1, 1, (2, 3), np.float32),
        spaces.Box(-1, 1, (2,), np.float64),
        spaces.Dict({"b": spaces.Discrete(2), "a": spaces.MultiDiscrete([2, 4])}),
        spaces.Tuple((spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2, start=1), spaces.MultiBinary(2))),
    ],
)
def test_actions_are_translated_both_ways(space: spaces.Space[Any]) -> None:
    adapter = ActionAdapter(space)
    for seed in range(5):
        space.seed(seed)
        action = space.sample()
        flat = adapter.flat(action)
        assert flat.dtype == adapter.dtype
        assert flat.shape == adapter.shape
        (again,) = adapter.rows(flat[None])
        np.testing.assert_array_almost_equal(spaces.flatten(space, again), spaces.flatten(space, action), 6)


def batch(kind: list[StepKind], ids: list[int], replaced: list[bool], closed: tuple[int, ...] = ()) -> StepBatch:
    no, num_last = np.zeros(len(ids), np.bool_), sum(each == StepKind.LAST for each in kind)
    info = {"is_intervention": np.array(replaced)} if any(replaced) else {}
    return StepBatch(np.array(kind), np.array(ids), no, no, no, no, no, no, num_last, info, np.array(closed, int))  # type: ignore[arg-type]


def test_consecutive_steps_are_one_intervention() -> None:
    counter, mid, last = InterventionCounter(), StepKind.MID, StepKind.LAST
    counter.count(batch([StepKind.FIRST] * 2, [0, 1], [False, False]))
    for replaced in ([True, False], [True, True], [False, True], [True, False]):
        counter.count(batch([mid, mid], [0, 1], replaced))
    counter.count(batch([last, StepKind.FIRST], [0, 0], [True, False], closed=(1,)))
    assert counter.metrics() == {
        "agent/interventions_total": 3,
        "agent/interventions_per_episode": 2,
        "agent/intervention_ratio": 0.8,
    }


class Teacher:
    """Takes over above 1, and ends the episode with its mark."""

    def __init__(self, env: Any = None, mark: str | None = None) -> None:
        self.space, self._mark, self.begun = env.action_space, mark, 0

    def reset(self, obs: Any) -> None:
        self.begun += 1

    def __call__(self, obs: Any, action: Any) -> Any:
        return 6 if obs[0] > 1 else None

    def mark(self) -> str | None:
        return self._mark


def function(obs: Any, action: Any) -> Any:
    return 9


@pytest.mark.parametrize(
    ("mark", "reward", "ends", "told"),
    [
        (None, 1.0, (False, False), {}),
        ("success", 3.0, (True, False), {"success": True}),
        ("failure", 0.0, (True, False), {"success": False}),
        ("discard", 1.0, (False, True), {"discard": True}),
    ],
)
def test_an_expert_replaces_actions_and_judges(mark: Any, reward: float, ends: Any, told: dict[str, Any]) -> None:
    args = {"expert": f"{__name__}:Teacher", "args": {"mark": mark}, "success_reward": 2.0, "failure_reward": -1.0}
    env: Any = apply_wrappers(Guarded(), [WrapperSpec("intervention", args)], training=True)
    env.reset()
    assert (env.expert.space, env.expert.begun) == (env.action_space, 1)
    found = env.step(5)
    assert found[1:] == (reward, *ends, told)
    if mark is None:
        env.step(5)
        assert env.step(5)[4] == {"executed_action": 6}
    assert apply_wrappers(Guarded(), [WrapperSpec("intervention", args)], training=False).unwrapped is not env


@pytest.mark.parametrize(
    ("expert", "message"),
    [
        ("nowhere", "must be module:Class"),
        ("nowhere:Expert", "cannot be made: ModuleNotFoundError"),
        (f"{__name__}:Nobody", "has no attribute 'Nobody'"),
        (f"{__name__}:pytest", "cannot be called"),
    ],
)
def test_an_expert_that_cannot_be_had_is_named(expert: str, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        Intervention(Guarded(), expert)


def test_an_expert_that_answers_nonsense_is_named() -> None:
    env = Intervention(Guarded(), f"{__name__}:function")
    env.reset()
    with pytest.raises(EnvError, match="the expert's action cannot be executed: 9 is not an action of"):
        env.step(5)
    wrong = Intervention(Guarded(), Teacher(Guarded(), mark="win"))
    wrong.reset()
    with pytest.raises(EnvError, match="returns 'win'; it must be one of"):
        wrong.step(5)
