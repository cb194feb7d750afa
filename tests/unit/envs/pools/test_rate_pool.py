"""Environments driven at a fixed rate: the test moves the clock, and takes the turns of the thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from surreal.base.errors import ConfigError, ThreadFailedError
from surreal.base.specs import ObsSpec, action_spec
from surreal.base.types import EXECUTED_ACTION, IS_INTERVENTION, Action, StepBatch, StepKind
from surreal.distributed.experience.data_contract import Contract, extra_specs
from surreal.distributed.experience.row_log import RowLog
from surreal.envs import LocalEnvPool
from surreal.envs.pools.rate_pool import RatePool, safe_action_of

FIRST, MID, LAST = int(StepKind.FIRST), int(StepKind.MID), int(StepKind.LAST)
PERIOD_S = 0.02
DEADLINE_S = 20.0
BOX = spaces.Box(-1, 1, (2,), np.float32)


class Robot(gymnasium.Env[Any, Any]):
    """Remembers its commands; an observation is the number of commands so far."""

    observation_space = spaces.Box(0, 1e6, (1,), np.float32)
    action_space = BOX

    def __init__(self, length: int = 1000, on_step: Callable[[], None] = lambda: None) -> None:
        self.commands: list[float] = []
        self._length, self._on_step = length, on_step

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._left = self._length
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._on_step()
        self.commands.append(round(float(action[0]), 3))
        self._left -= 1
        return self._obs(), 1.0, self._left == 0, False, {}

    def _obs(self) -> NDArray[np.float32]:
        return np.array([len(self.commands)], np.float32)


class Driven:
    """A pool whose turns the test takes, and the log of its experience."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *robots: Robot, safe: NDArray[Any] | None = None, marks: bool = False
    ) -> None:
        self.now = 0.0
        inner = LocalEnvPool([lambda robot=robot: robot for robot in robots], interventions=marks)
        self.pool = RatePool(inner, 1 / PERIOD_S, safe, interventions=marks, clock=lambda: self.now)
        monkeypatch.setattr(self.pool._supervisor, "spawn", lambda *_: None)
        spec = ObsSpec.from_space(Robot.observation_space)
        self.log = RowLog(Contract(spec, action_spec(BOX), extra_specs({}, None, interventions=marks), 0), 64)

    def period(self) -> None:
        """Let a deadline come."""
        self.now += max(0.0, self.pool.deadlines.left_s()) + 1e-9
        self.pool.step()

    def observe(self) -> StepBatch:
        return self.pool.recv(0.0)

    def answer(self, batch: StepBatch, command: float) -> None:
        """Act as the agent's loop does, also where it is too late."""
        ids = batch.env_ids[batch.num_last :]
        actions = np.full((len(ids), 2), command, np.float32)
        self.pool.send(actions, ids)
        self.log.close_slots(batch.closed_ids)
        self.log.append_batch(batch, Action(actions, {}, 0))

    def steps(self) -> list[tuple[float, float, float]]:
        """Return observation, action and next observation of the recorded steps."""
        self.log.close_open_rows()
        segments = self.log._segments()
        found = []
        for start, end in zip(segments.start, segments.end, strict=True):
            rows = segments.order[start : end + 1]
            obs, action = self.log.leaves[0][rows, 0], self.log.action[rows, 0]
            found += [(float(obs[i]), round(float(action[i]), 3), float(obs[i + 1])) for i in range(len(rows) - 1)]
        return found


def test_actions_leave_at_the_deadline_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    robot = Robot()
    driven = Driven(monkeypatch, robot)
    assert not len(driven.observe().kind)
    driven.period()
    for number in range(3):
        batch = driven.observe()
        assert batch.kind.tolist() == [FIRST if number == 0 else MID]
        driven.answer(batch, 0.1 * number)
        assert len(robot.commands) == number
        assert not len(driven.observe().kind)
        driven.period()
    assert robot.commands == [0.0, 0.1, 0.2]
    assert driven.pool.metrics()["agent/missed_deadlines_total"] == 0


@pytest.mark.parametrize("safe", [None, np.array([-0.5, -0.5], np.float32)])
def test_a_late_action_is_replaced_and_its_step_is_no_experience(
    monkeypatch: pytest.MonkeyPatch, safe: NDArray[Any] | None
) -> None:
    robot = Robot()
    driven = Driven(monkeypatch, robot, safe=safe)
    driven.observe()
    driven.period()
    driven.answer(driven.observe(), 0.1)
    driven.period()
    driven.answer(driven.observe(), 0.2)
    driven.period()
    late = driven.observe()
    driven.period()  # the agent is still computing
    driven.period()  # and has not seen the next observation
    driven.answer(late, 0.9)
    after = driven.observe()
    assert after.kind.tolist() == [FIRST]
    assert after.reward.tolist() == [0.0]
    assert after.closed_ids.tolist() == [0]
    driven.answer(after, 0.3)
    driven.period()
    driven.answer(driven.observe(), 0.4)
    replaced = 0.2 if safe is None else -0.5
    assert robot.commands == [0.1, 0.2, replaced, replaced, 0.3]
    assert driven.steps() == [(0.0, 0.1, 1.0), (1.0, 0.2, 2.0), (4.0, 0.3, 5.0)]
    metrics = driven.pool.metrics()
    assert metrics["agent/missed_deadlines_total"] == 2
    assert metrics["agent/latency_p99_ms"] == pytest.approx(2e3 * PERIOD_S, rel=0.1)


def test_where_interventions_are_recorded_a_late_action_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    robot = Robot()
    driven = Driven(monkeypatch, robot, safe=np.array([-0.5, 0.5], np.float32), marks=True)
    driven.observe()
    driven.period()
    late = driven.observe()
    driven.period()
    driven.answer(late, 0.9)
    after = driven.observe()
    assert after.kind.tolist() == [MID] and not len(after.closed_ids)
    assert after.info[IS_INTERVENTION].tolist() == [True]
    assert after.info[EXECUTED_ACTION].tolist() == [[-0.5, 0.5]]
    driven.answer(after, 0.3)
    driven.period()
    assert not driven.observe().info.get(IS_INTERVENTION, np.zeros(1, bool)).any()
    driven.period()  # late again
    driven.period()  # and this observation was never seen
    assert driven.observe().kind.tolist() == [FIRST]
    assert robot.commands == [-0.5, 0.3, -0.5, -0.5]
    assert driven.steps() == [(0.0, -0.5, 1.0)]


@pytest.mark.parametrize("marks", [False, True])
@pytest.mark.parametrize("safe", [None, np.array([-0.5, -0.5], np.float32)])
def test_in_a_pause_no_action_leaves_and_no_step_across_it_is_experience(
    monkeypatch: pytest.MonkeyPatch, safe: NDArray[Any] | None, marks: bool
) -> None:
    robot = Robot()
    driven = Driven(monkeypatch, robot, safe=safe, marks=marks)
    monkeypatch.setattr(driven.pool._supervisor, "stop_event", threading.Event())
    driven.observe()
    driven.period()
    for command in (0.1, 0.2):
        driven.answer(driven.observe(), command)
        driven.period()
    driven.answer(driven.observe(), 0.3)
    driven.pool.pause()
    driven.period()  # the safe action
    driven.answer(driven.observe(), 0.4)
    for _ in range(5):
        driven.now += 2.5 * PERIOD_S
        driven.pool.step()
    still = 0.2 if safe is None else -0.5
    assert robot.commands == [0.1, 0.2, still]
    assert driven.pool.awaited() == "paused"
    driven.pool.resume()
    driven.period()  # the safe action, for a new observation
    assert driven.pool.deadlines.left_s() == pytest.approx(PERIOD_S, rel=1e-3)
    after = driven.observe()
    assert after.kind.tolist() == [FIRST] and after.closed_ids.tolist() == [0]
    driven.answer(after, 0.5)
    driven.period()
    driven.answer(driven.observe(), 0.6)
    assert robot.commands == [0.1, 0.2, still, still, 0.5]
    stopping = [(2.0, pytest.approx(still), 3.0)] if marks else []  # an intervention
    assert driven.steps() == [(0.0, 0.1, 1.0), (1.0, 0.2, 2.0), *stopping, (4.0, 0.5, 5.0)]
    assert driven.pool.metrics()["agent/missed_deadlines_total"] == 0


def test_the_last_action_of_an_episode_is_not_taken_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    robot = Robot(length=2)
    driven = Driven(monkeypatch, robot)
    driven.observe()
    driven.period()
    for command in (0.7, 0.8):
        driven.answer(driven.observe(), command)
        driven.period()
    driven.period()
    assert robot.commands == [0.7, 0.8, 0.0]


def test_ends_of_episodes_reach_an_agent_that_was_late(monkeypatch: pytest.MonkeyPatch) -> None:
    robots = Robot(length=2), Robot(length=3)
    driven = Driven(monkeypatch, *robots)
    driven.observe()
    driven.period()
    driven.answer(driven.observe(), 0.1)
    for _ in range(4):
        driven.period()
    ends: list[int] = []
    while len((batch := driven.observe()).kind):
        ends += batch.env_ids[: batch.num_last].tolist()
        driven.answer(batch, 0.2)
    assert ends == [0, 1, 0]
    for command in (0.3, 0.4):
        driven.period()
        driven.answer(driven.observe(), command)
    assert [robot.commands for robot in robots] == [[0.1, 0.1, 0.0, 0.0, 0.2, 0.3], [0.1, 0.1, 0.1, 0.0, 0.2, 0.3]]
    assert driven.steps() == 2 * [(4.0, 0.2, 5.0), (5.0, 0.3, 6.0)]
    assert sum(chunk.own_steps for chunk in driven.log.cut(1 << 20)) == 4


def test_an_environment_that_takes_too_long_misses_its_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    def dawdle() -> None:
        driven.now += 2.5 * PERIOD_S

    robot = Robot(on_step=dawdle)
    driven = Driven(monkeypatch, robot)
    driven.observe()
    driven.period()
    for _ in range(2):
        driven.answer(driven.observe(), 0.1)
        driven.period()
    assert driven.pool.deadlines.missed == 4
    assert driven.pool.deadlines.left_s() == pytest.approx(0.5 * PERIOD_S)
    assert robot.commands == [0.1, 0.1]


def test_batches_stay_valid_while_the_environments_step(monkeypatch: pytest.MonkeyPatch) -> None:
    driven = Driven(monkeypatch, Robot())
    driven.observe()
    driven.period()
    batch = driven.observe()
    driven.period()
    driven.period()
    assert batch.obs.tolist() == [[0.0]]


def test_the_thread_keeps_acting_while_the_agent_does_nothing() -> None:
    acted = threading.Semaphore(0)
    robot = Robot(on_step=acted.release)
    with RatePool(LocalEnvPool([lambda: robot]), 200.0, np.array([0.5, 0.5], np.float32)) as pool:
        while not len(pool.recv(1.0).kind):
            pass
        for _ in range(5):
            assert acted.acquire(timeout=DEADLINE_S)
    assert set(robot.commands) == {0.5}


REALTIME = """
import os, sys, threading
sys.path.insert(0, sys.argv[1])
from test_rate_pool import LocalEnvPool, RatePool, Robot
found, has_stepped = [], threading.Event()
def step():
    found.append(os.sched_getscheduler(0))
    has_stepped.set()
pool = RatePool(LocalEnvPool([lambda: Robot(on_step=step)]), 50.0, is_realtime=True)
pool.recv(1.0)
assert has_stepped.wait(60.0)
pool.close()
print(found[0] == os.sched_getscheduler(0) == os.SCHED_RR)
"""


@pytest.mark.skipif(not hasattr(os, "sched_setscheduler"), reason="the system has no such priorities")
def test_both_threads_of_a_real_time_loop_have_its_priority() -> None:
    try:
        subprocess.run([sys.executable, "-c", "import os; os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))"],
                       check=True, stderr=subprocess.DEVNULL)  # fmt: skip
    except subprocess.CalledProcessError:
        pytest.skip("this process may not set a real-time priority")
    command = [sys.executable, "-c", REALTIME, str(Path(__file__).parent)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "True\n"


def test_a_refused_real_time_priority_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse, raising=False)
    pool = RatePool(LocalEnvPool([Robot]), 50.0, is_realtime=True)
    with pytest.raises(ConfigError, match=r"env\.realtime is true, .* ulimit -r 1"):
        pool.recv(1.0)
    pool.close()


def test_an_error_of_an_environment_reaches_the_agent() -> None:
    def fail() -> None:
        raise OSError("the arm is unplugged")

    pool = RatePool(LocalEnvPool([lambda: Robot(on_step=fail)]), 1000.0)
    with pool, pytest.raises(ThreadFailedError, match="the arm is unplugged"):
        for _ in range(1000):
            pool.recv(1.0)


@pytest.mark.parametrize(
    ("value", "space", "action"),
    [
        (0, BOX, [0.0, 0.0]),
        ([0.1, -1], BOX, [0.1, -1.0]),
        (2, spaces.Discrete(3), 2),
        ([1, 2], spaces.MultiDiscrete([2, 3]), [1, 2]),
        ([1, 0, 1, 1], spaces.MultiBinary(4), [1, 0, 1, 1]),
    ],
)
def test_a_safe_action_is_one_of_the_space(value: Any, space: gymnasium.Space[Any], action: Any) -> None:
    found = safe_action_of(value, space)
    assert found is not None
    np.testing.assert_allclose(found, action)
    assert safe_action_of("last", space) is None


@pytest.mark.parametrize(
    ("value", "space"),
    [
        (2, BOX),
        (float("nan"), BOX),
        (float("inf"), spaces.Box(-np.inf, np.inf, (2,), np.float32)),
        (3e39, spaces.Box(-np.inf, np.inf, (2,), np.float32)),
        ([0.0, 0.0, 0.0], BOX),
        ([[0.0], [0.0, 1.0]], BOX),
        ("stop", BOX),
        (3, spaces.Discrete(3)),
        (0.5, spaces.Discrete(3)),
        (float("nan"), spaces.Discrete(3)),
        (-1, spaces.MultiDiscrete([2, 3])),
    ],
)
def test_other_safe_actions_are_refused(value: Any, space: gymnasium.Space[Any]) -> None:
    with pytest.raises(ValueError, match="is "):
        safe_action_of(value, space)
