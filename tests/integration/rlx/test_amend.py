"""Clients whose rewards become known later: what the server answers, and which steps it holds back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surreal.rlx import AgentProxy
from surreal.rlx.pool.held_steps import PENDING_STEP

STATE = np.array([1.0, 0.0], np.float32)


def pending_of(served: Any) -> list[int]:
    """Numbers in the column of all rows that came."""
    return [int(row.info[PENDING_STEP][0]) if PENDING_STEP in row.info else 0 for row in served.rows]


def test_the_number_comes_with_the_reply_and_with_the_row_of_its_reward(harness: Any, wire: Any) -> None:
    served = harness(max_amend_s=60.0)
    client = wire(served)
    client.init()
    numbers = []
    for within_s in (None, None, 60, None, 0.01, None):  # floats in one form: the server learns their layout
        more = {} if within_s is None else {"amend_within_s": within_s}
        reward = 1.0 if numbers else None
        numbers.append(client.ask(command="update", reward=reward, state=STATE, terminal=False, **more).get("step_id"))
    end = client.ask(command="update", reward=1.0, state=STATE, terminal=True, amend_within_s=60.0)
    assert end["data"] is None
    numbers.append(end["step_id"])
    assert [number is None for number in numbers] == [True, True, False, True, False, True, False]
    served.wait(lambda: len(served.rows) == 7)
    assert pending_of(served) == [number or 0 for number in numbers]
    assert client.ask(command="amend", step_id=numbers[2], reward=-1)["is_amended"] is True
    assert client.ask(command="amend", step_id=numbers[2], reward=-1)["is_amended"] is False
    served.wait(lambda: numbers[4] in served.pool._intake._final)  # its time is over
    assert client.ask(command="amend", step_id=numbers[4], reward=-1)["is_amended"] is False
    assert served.pool.take_final() == {numbers[2]: -1.0, numbers[4]: None}
    metrics = served.server.metrics()
    names = ("amended_rewards", "expired_rewards", "refused_amendments")
    assert [metrics[f"rlx/{name}_total"] for name in names] == [1, 1, 2]


def test_a_new_client_does_not_wait_for_the_steps_of_one_that_left(harness: Any, wire: Any) -> None:
    served = harness(max_amend_s=60.0)
    hub = served.server._hub
    first, second, third = wire(served), wire(served), wire(served)
    first.init()
    first.update(STATE)
    step_id = first.ask(command="update", reward=0.0, state=STATE, terminal=True, amend_within_s=60.0)["step_id"]
    first.close()
    served.wait(lambda: hub._free == [0])
    second.init()
    second.update(STATE)
    assert second.ask(command="amend", step_id=step_id, reward=1.0)["is_amended"]
    third.init()
    third.update(STATE)
    served.wait(lambda: len(served.rows) == 4)
    assert [int(row.env_ids) for row in served.rows] == [0, 0, 1, 0]


def test_sessions_that_exploit_or_name_a_policy_hold_nothing_back(harness: Any, wire: Any) -> None:
    served = harness(max_amend_s=60.0)
    client = wire(served)
    client.ask(command="init", exploit=True)
    client.update(STATE)
    step_id = client.ask(command="update", reward=0.0, state=STATE, terminal=False, amend_within_s=9.0)["step_id"]
    assert client.ask(command="amend", step_id=step_id, reward=1.0) == {"response": "done", "is_amended": False}


@pytest.mark.parametrize("within_s", [0, -1, 61, float("nan"), "5", True])
def test_a_time_that_is_not_allowed_is_an_error_and_the_step_can_be_sent_again(
    harness: Any, wire: Any, within_s: Any
) -> None:
    client = wire(harness(max_amend_s=60.0))
    client.init()
    client.update(STATE)
    request = {"command": "update", "reward": 1.0, "state": STATE, "terminal": False}
    assert "must be > 0 and <= 60" in client.ask(**request, amend_within_s=within_s)["message"]
    assert client.ask(**request)["response"] == "action"


def test_bad_amendments_are_errors_and_the_step_stays_pending(harness: Any, wire: Any) -> None:
    served = harness(max_amend_s=60.0)
    client = wire(served)
    assert client.ask(command="amend", step_id=1, reward=1.0)["message"] == "init comes first"
    client.init()
    assert "without a reward" in client.ask(command="update", reward=None, state=STATE, amend_within_s=1.0)["message"]
    client.update(STATE)
    step_id = client.ask(command="update", reward=0.0, state=STATE, terminal=False, amend_within_s=9.0)["step_id"]
    for wrong in (None, "1", 1.0, True):
        assert "step_id must be" in client.ask(command="amend", step_id=wrong, reward=1.0)["message"]
    for reward in (None, "1", float("nan"), 1e10):
        assert client.ask(command="amend", step_id=step_id, reward=reward)["response"] == "error"
    assert client.ask(command="amend", step_id=step_id, reward=1.0)["is_amended"]
    assert client.update(STATE, 1.0) == 1  # the episode continues


def test_a_run_without_the_setting_refuses_pending_rewards(harness: Any, wire: Any) -> None:
    client = wire(harness())
    client.init()
    client.update(STATE)
    reply = client.ask(command="update", reward=0.0, state=STATE, terminal=False, amend_within_s=9.0)
    assert "set rlx.max_amend_s" in reply["message"]


def test_a_robot_amends_between_its_updates(harness: Any) -> None:
    served = harness(max_amend_s=60.0)
    with AgentProxy(f"ws://127.0.0.1:{served.port}", rate_hz=20.0, safe_action=-1) as agent:
        agent.connect()
        agent.init()
        agent.update(None, STATE)
        served.wait(lambda: agent.update(0.0, STATE, amend_within_s=30.0) == 1 and agent.step_id is not None)
        step_id = agent.step_id
        served.may_act.clear()
        agent.update(0.0, STATE, amend_within_s=30.0)
        assert agent.step_id is None  # the answer was late
        assert not agent.amend(agent.step_id, reward=1.0)
        served.may_act.set()
        assert agent.amend(step_id, reward=1.0)  # after the answer that was late
        served.wait(lambda: served.pool._intake._final == {step_id: 1.0})
