"""The agent loop over a pool that plays back batches."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from surreal.agent import ActContext, Agent, AgentLoop
from surreal.base.errors import ContractError
from surreal.base.pytorch import Module
from surreal.base.types import Action, StepBatch, StepKind

FIRST, MID, LAST = StepKind.FIRST, StepKind.MID, StepKind.LAST

DEADLINE_S = 20.0


def make_batch(
    kinds: list[int],
    env_ids: list[int],
    *,
    obs: Any = None,
    explore: list[bool] | None = None,
    record: list[bool] | None = None,
    info: dict[str, Any] | None = None,
    closed: tuple[int, ...] = (),
) -> StepBatch:
    count = len(kinds)
    none = np.zeros(count, bool)
    return StepBatch(
        kind=np.array(kinds, dtype=np.uint8),
        env_ids=np.array(env_ids, dtype=np.int64),
        obs=np.array(env_ids, dtype=np.float32).reshape(count, 1) if obs is None else obs,
        reward=np.zeros(count, np.float32),
        terminated=none,
        truncated=none,
        explore=np.ones(count, bool) if explore is None else np.array(explore),
        record=np.ones(count, bool) if record is None else np.array(record),
        num_last=sum(kind == LAST for kind in kinds),
        info=info or {},
        closed_ids=np.array(closed, dtype=np.int64),
    )


EMPTY = make_batch([], [], obs=np.zeros((0, 1), np.float32))


class FakePool:
    """Plays back batches, then is empty for ever; remembers the order of events."""

    wants: frozenset[str] = frozenset()

    def __init__(self, batches: list[StepBatch], events: list[Any]) -> None:
        self.batches = batches
        self.events = events

    def recv(self, timeout_s: float = 1.0) -> StepBatch:
        self.events.append("recv")
        return self.batches.pop(0) if self.batches else EMPTY

    def send(self, actions: np.ndarray, env_ids: np.ndarray) -> None:
        self.events.append(("send", actions.tolist(), env_ids.tolist()))


class FakeSender:
    def __init__(self, events: list[Any]) -> None:
        self.events = events
        self.global_step = 0
        self.sent: list[tuple[StepBatch, Action]] = []

    def send_batch(self, batch: StepBatch, action: Action) -> None:
        self.events.append("record")
        self.sent.append((batch, action))

    def send_outcomes(self, batch: StepBatch) -> None:
        self.events.append("outcomes")

    def send_actions(self, env_ids: np.ndarray, record: np.ndarray, action: Action) -> None:
        self.events.append(("actions", env_ids.tolist(), action.version))

    @property
    def sent_through(self) -> tuple[str, int]:
        return "me", self.events.count("flush all")

    def flush_due(self) -> None:
        self.events.append("flush")

    def flush(self) -> None:
        self.events.append("flush all")


class FakeAgent(Agent):
    """Its action is ten times the observation, which is the environment's id."""

    def __init__(self) -> None:
        super().__init__(Module())
        self.calls: list[dict[str, Any]] = []

    def _act(self, obs: Any, explore: np.ndarray, context: ActContext) -> Any:
        leaf = obs["x"][0] if isinstance(obs, dict) else obs
        self.calls.append(
            {
                "first": context.is_first.tolist(),
                "explore": explore.tolist(),
                "mask": context.action_mask,
                "step": self.global_step,
            }
        )
        actions = leaf[:, 0] * 10
        return actions, {"value": actions * 2}


def make_loop(*batches: StepBatch, **options: Any) -> tuple[AgentLoop, FakePool, FakeAgent, FakeSender]:
    events: list[Any] = []
    pool, agent, sender = FakePool(list(batches), events), FakeAgent(), FakeSender(events)
    return AgentLoop(pool, agent, sender, **options), pool, agent, sender


def test_last_rows_never_act_and_order_is_kept() -> None:
    batch = make_batch([LAST, LAST, FIRST, MID, FIRST], [4, 1, 4, 0, 1], explore=[True, True, False, True, True])
    loop, pool, agent, sender = make_loop(batch)
    assert loop.step() == 3
    assert pool.events[1] == ("send", [40.0, 0.0, 10.0], [4, 0, 1])
    assert agent.calls[0]["first"] == [True, False, True]
    assert agent.calls[0]["explore"] == [False, True, True]
    sent, action = sender.sent[0]
    assert sent is batch
    assert action.actions.tolist() == [40.0, 0.0, 10.0]
    assert action.extras["value"].tolist() == [80.0, 0.0, 20.0]
    assert (loop.env_steps, loop.episodes) == (3, 2)


def test_a_batch_of_last_rows_only_is_recorded_without_actions() -> None:
    loop, pool, agent, sender = make_loop(make_batch([MID], [2]), make_batch([LAST], [2]))
    assert [loop.step(), loop.step()] == [1, 0]
    _, action = sender.sent[1]
    assert action.actions.shape == (0,)
    assert action.actions.dtype == np.float32
    assert {name: column.shape for name, column in action.extras.items()} == {"value": (0,)}
    assert pool.events == ["recv", ("send", [20.0], [2]), "record", "recv", "record"]
    assert len(agent.calls) == 1


def test_an_empty_batch_lets_the_sender_flush() -> None:
    loop, pool, agent, _ = make_loop(EMPTY)
    assert loop.step() == 0
    assert pool.events == ["recv", "flush"]
    assert not agent.calls


def test_environments_that_went_away_reach_the_sender() -> None:
    loop, pool, _, sender = make_loop(EMPTY._replace(closed_ids=np.array([3])))
    assert loop.step() == 0
    assert pool.events == ["recv", "record"]
    assert sender.sent[0][0].closed_ids.tolist() == [3]


def test_only_recorded_rows_count_as_env_steps() -> None:
    loop, *_ = make_loop(make_batch([MID, MID, MID], [0, 1, 2], record=[True, False, True]))
    assert loop.step() == 3
    assert loop.env_steps == 2


def test_nested_observations_and_masks_are_cut_to_the_acting_rows() -> None:
    ids = np.array([[5.0], [5.0], [6.0]], dtype=np.float32)
    mask = np.array([[True, True], [True, False], [False, True]])
    batch = make_batch([LAST, FIRST, MID], [5, 5, 6], obs={"x": (ids, ids)}, info={"action_mask": mask})
    loop, pool, agent, _ = make_loop(batch)
    assert loop.step() == 2
    assert pool.events[1] == ("send", [50.0, 60.0], [5, 6])
    np.testing.assert_array_equal(agent.calls[0]["mask"], mask[1:])


def test_ended_episodes_are_reported_except_those_that_go_on() -> None:
    nan = float("nan")
    info = {"episode_return": np.array([7.5, nan, nan]), "episode_length": np.array([30, 0, 0])}
    reports: list[tuple[float, int, int]] = []
    loop, *_ = make_loop(
        make_batch([LAST, LAST, MID], [3, 1, 0], info=info), on_episode=lambda *report: reports.append(report)
    )
    loop.step()
    assert reports == [(7.5, 30, 3)]
    assert loop.episodes == 1
    assert [type(item) for item in reports[0]] == [float, int, int]


def test_the_agent_knows_the_senders_global_step() -> None:
    loop, _, agent, sender = make_loop(make_batch([MID], [0]), make_batch([MID], [0]))
    loop.step()
    sender.global_step = 640
    loop.step()
    assert [call["step"] for call in agent.calls] == [0, 640]


def test_without_a_sender_it_only_acts() -> None:
    events: list[Any] = []
    agent = FakeAgent()
    loop = AgentLoop(FakePool([make_batch([LAST, FIRST], [0, 0]), EMPTY], events), agent, None)
    assert [loop.step(), loop.step()] == [1, 0]
    assert agent.global_step is None
    assert loop.env_steps == 1


def test_run_stops_at_the_steps_it_was_given() -> None:
    loop, pool, *_ = make_loop(*(make_batch([MID, MID], [0, 1]) for _ in range(10)))
    loop.run(threading.Event(), max_env_steps=7)
    assert loop.env_steps == 8
    assert len(pool.batches) == 6


def test_run_stops_when_the_event_is_set() -> None:
    loop, *_ = make_loop()
    stop = threading.Event()
    thread = threading.Thread(target=loop.run, args=(stop,))
    thread.start()
    stop.set()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_an_error_of_the_agent_ends_the_run() -> None:
    loop, _, agent, _ = make_loop(make_batch([MID], [0]))
    agent._act = lambda obs, explore, context: np.zeros(2)  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="2 actions for 1 rows"):
        loop.run(threading.Event())


def test_metrics_name_steps_episodes_and_the_version() -> None:
    loop, _, agent, _ = make_loop(make_batch([LAST, FIRST], [0, 0]))
    agent.model.version = 12
    loop.step()
    metrics = loop.metrics()
    assert metrics.pop("agent/act_ms") > 0.0
    assert metrics == {"agent/env_steps_total": 1.0, "agent/episodes_total": 1.0, "agent/version": 12.0}


def test_a_listener_that_died_ends_the_loop_before_anything_more_is_recorded() -> None:
    loop, _, agent, sender = make_loop(make_batch([FIRST], [0]), make_batch([MID], [0]))
    loop.step()
    agent.model.fail(ContractError("fc1.weight is another"))
    with pytest.raises(ContractError, match=r"fc1\.weight is another"):
        loop.run(threading.Event())
    assert len(sender.sent) == 1
