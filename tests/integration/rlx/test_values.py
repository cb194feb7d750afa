"""Numbers that would do damage, and episodes that begin without an end: the old one is cut, the session goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from websockets.sync.client import connect

from surreal.base.types import StepKind
from surreal.envs.wrappers.named import WrapperSpec
from surreal.rlx.pool.ranges import ValueLimits
from surreal.rlx.pool.states import RewardReader
from surreal.rlx.pool.wrapping import RemoteWrappers

UNBOUNDED = spaces.Box(-np.inf, np.inf, (2,), np.float32)
GOOD = np.array([1, 0], np.float32)


def kinds(served: Any) -> list[str]:
    return [StepKind(int(row.kind)).name for row in served.rows]


def refused(served: Any) -> float:
    return float(served.server.metrics()["rlx/refused_values_total"])


def play(served: Any, ask: Callable[..., dict[str, Any]], bad: dict[str, Any], expected: str) -> None:
    """Two steps, a bad one, and a new episode."""
    assert ask(command="init")["response"] == "ready"
    good = GOOD.tolist() if isinstance(bad["state"], list) else GOOD
    for reward in (None, 1.0, 1.0):
        assert ask(command="update", reward=reward, state=good, terminal=False)["response"] == "action"
    reply = ask(command="update", **{"terminal": False, **bad})
    assert reply["response"] == "error", reply
    assert expected in reply["message"]
    # The reward of a step that was cut off is nobody's.
    assert ask(command="update", reward=5.0, state=good, terminal=False)["response"] == "action"
    assert kinds(served) == ["FIRST", "MID", "MID", "FIRST"]
    assert [float(row.reward) for row in served.rows] == [0.0, 1.0, 1.0, 0.0]
    assert served.closed == [0]
    assert refused(served) == 1
    assert served.pool.metrics()["env/episodes_total"] == 0


BAD: list[tuple[Any, Any, str]] = [
    (np.array([0, np.nan], np.float32), 1.0, "the state[1] is nan; it must be finite"),
    (np.array([np.inf, 0], np.float32), 1.0, "the state[0] is inf"),
    (np.array([3e38, 0], np.float32), 1.0, "it must be finite, and from -1e+18 to 1e+18"),
    (np.array([1e300, 0]), 1.0, "the state[0] is 1e+300"),
    ([1e300, 0.0], 1.0, "the state[0] is 1e+300"),
    (GOOD, float("nan"), "the reward is nan"),
    (GOOD, float("-inf"), "the reward is -inf"),
    (GOOD, 1e10, "no larger than 1e+09"),
    (GOOD, [1.0, float("nan")], "the reward is nan"),
    (GOOD, np.array([1e300, -1e300]), "the reward is 1e+300"),
]


@pytest.mark.parametrize(("state", "reward", "expected"), BAD, ids=range(len(BAD)))
def test_bad_value_over_tcp_cuts_the_episode(harness: Any, wire: Any, state: Any, reward: Any, expected: str) -> None:
    served = harness(UNBOUNDED)
    play(served, wire(served).ask, {"state": state, "reward": reward}, expected)


def test_bad_end_of_an_episode_is_none(harness: Any, wire: Any) -> None:
    served = harness(UNBOUNDED)
    bad = {"state": np.array([0, np.nan], np.float32), "reward": 1.0, "terminal": True}
    play(served, wire(served).ask, bad, "the state[1] is nan")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e300", "1" + "0" * 400])
@pytest.mark.parametrize("place", ["state", "reward"])
def test_bad_value_in_json_cuts_the_episode(harness: Any, number: str, place: str) -> None:
    served = harness(UNBOUNDED)
    with connect(f"ws://127.0.0.1:{served.port}/", compression=None, proxy=None, close_timeout=1) as sock:

        def ask(**message: Any) -> dict[str, Any]:
            text = json.dumps(message).replace('"BAD"', number)
            sock.send(text)
            return dict(json.loads(sock.recv(timeout=60)))

        bad = {"state": ["BAD", 0], "reward": 1} if place == "state" else {"state": [1, 0], "reward": "BAD"}
        play(served, ask, bad, "the state" if place == "state" else "the reward is")


def test_bounds_of_the_space_hold_where_they_are_to(harness: Any, wire: Any) -> None:
    served = harness(pool={"limits": ValueLimits(keeps_bounds=True)})  # from -9 to 9
    bad = np.array([0, 9.1], np.float32)
    play(served, wire(served).ask, {"state": bad, "reward": 1.0}, "from -9.00009 to 9.00009")


@pytest.mark.parametrize("form", ["bytes", "list", "stacked"])
def test_state_outside_of_its_bounds_is_counted_once(harness: Any, wire: Any, form: str) -> None:
    """Careless bounds are common: an environment that leaves them can be trained all the same."""
    served = harness(pool={"frame_stack": 2} if form == "stacked" else {})  # from -9 to 9
    client = wire(served)
    client.init()
    for reward, value in ((None, 8.0), (1.0, 9.5), (1.0, -12.0), (1.0, 3.0)):
        state = np.array([value, 0], np.float32)
        assert client.update(state.tolist() if form == "list" else state, reward) in (0, 1)
    assert kinds(served) == ["FIRST", "MID", "MID", "MID"]
    assert served.pool.metrics()["rlx/outside_bounds_total"] == 2
    assert refused(served) == 0
    bad = client.ask(command="update", reward=1.0, state=np.array([9.5, np.nan], np.float32), terminal=False)
    assert "the state[1] is nan" in bad["message"]


def test_only_the_bad_rows_of_a_batch_are_refused(harness: Any, wire: Any) -> None:
    served = harness(UNBOUNDED)
    clients = [wire(served) for _ in range(3)]
    for client in clients:
        client.init()
        client.update(GOOD)
        client.update(GOOD, 1.0)
    served.may_act.clear()
    clients[0].send(command="update", reward=1.0, state=GOOD, terminal=False)  # the agent is busy with this one
    served.wait(lambda: len(served.rows) == 7)
    for client, value in zip(clients[1:], (np.nan, 5.0), strict=True):
        client.send(command="update", reward=1.0, state=np.array([value, 0], np.float32), terminal=False)
    served.may_act.set()
    assert [client.recv()["response"] for client in clients] == ["action", "error", "action"]
    assert len(served.closed) == 1
    for client in clients:
        assert client.update(GOOD, 1.0) == 1


def test_bad_state_of_a_session_that_leaves_is_dropped(harness: Any, wire: Any) -> None:
    served = harness(UNBOUNDED)
    one, two = wire(served), wire(served)
    for client in (one, two):
        client.init()
        client.update(GOOD)
        client.update(GOOD, 1.0)
    served.may_act.clear()
    one.send(command="update", reward=1.0, state=GOOD, terminal=False)
    served.wait(lambda: len(served.rows) == 5)
    two.send(command="update", reward=1.0, state=np.array([np.nan, 0], np.float32), terminal=False)
    two.close()
    served.may_act.set()
    served.wait(lambda: len(served.closed) == 1)
    assert one.recv()["response"] == "action"
    assert all(np.isfinite(row.obs).all() for row in served.rows)


class BrokenTwice(gymnasium.ActionWrapper[Any, Any, Any]):
    """Fails with the second and third action."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self._calls = 0

    def action(self, action: Any) -> Any:
        self._calls += 1
        if self._calls in (2, 3):
            raise KeyError("no such action")
        return action


def test_an_action_that_a_wrapper_fails_with_is_no_step(harness: Any, wire: Any) -> None:
    """The client never gets it, so what comes next did not come of it."""
    wrappers = RemoteWrappers([WrapperSpec(f"{__name__}.BrokenTwice")], UNBOUNDED, spaces.Discrete(2))
    served = harness(UNBOUNDED, pool={"wrappers": wrappers})
    client = wire(served)
    client.init()
    client.update(GOOD)
    for _ in range(2):
        reply = client.ask(command="update", reward=1.0, state=GOOD, terminal=False)
        assert "wrapper BrokenTwice failed: KeyError" in reply["message"]
    client.update(GOOD, 1.0)
    assert kinds(served) == ["FIRST", "MID", "FIRST", "FIRST"]
    assert len(served.closed) == 2, "the sender drops the step in flight"


def test_reward_that_wrappers_make_too_large_is_refused(harness: Any, wire: Any) -> None:
    wrappers = RemoteWrappers([WrapperSpec("reward_scale", {"scale": 1e9})], UNBOUNDED, spaces.Discrete(2))
    served = harness(UNBOUNDED, pool={"wrappers": wrappers})
    client = wire(served)
    client.init()
    client.update(GOOD)
    assert client.update(GOOD, 1.0) == 1
    assert "the reward is" in client.ask(command="update", reward=2.0, state=GOOD, terminal=False)["message"]


def test_largest_reward_is_a_setting(harness: Any, wire: Any) -> None:
    served = harness(rewards=RewardReader(largest=1e12))
    client = wire(served)
    client.init()
    client.update(GOOD)
    assert client.update(GOOD, 1e11) == 1


@pytest.mark.parametrize("exploit", [False, True])
@pytest.mark.parametrize("form", ["bytes", "list", "json"])
def test_missing_reward_in_mid_episode_begins_a_new_one(harness: Any, wire: Any, form: str, *, exploit: bool) -> None:
    served = harness()
    state: Any = GOOD if form == "bytes" else GOOD.tolist()
    updates = [
        {"command": "update", "reward": r, "state": state, "terminal": False} for r in (None, 1.0, 1.0, None, 2.0)
    ]
    messages = [{"command": "init", "exploit": exploit}, *updates]
    if form == "json":
        with connect(f"ws://127.0.0.1:{served.port}/", compression=None, proxy=None, close_timeout=1) as sock:
            for message in messages:
                sock.send(json.dumps(message))
                assert json.loads(sock.recv(timeout=60))["response"] in ("ready", "action")
    else:
        client = wire(served)
        assert [client.ask(**message)["response"] for message in messages] == ["ready"] + 5 * ["action"]
    assert kinds(served) == ["FIRST", "MID", "MID", "FIRST", "MID"]
    assert [float(row.reward) for row in served.rows] == [0.0, 1.0, 1.0, 0.0, 2.0]
    assert served.closed[0] == 0
    assert refused(served) == 0


def test_end_without_a_reward_gives_the_episode_up(harness: Any, wire: Any) -> None:
    served = harness()
    client = wire(served)
    client.init()
    client.update(GOOD)
    assert client.update(GOOD, terminal=True) is None
    assert client.update(GOOD) == 1
    assert kinds(served) == ["FIRST", "FIRST"]
    assert served.closed == [0]


def test_old_connection_is_closed_where_an_episode_begins_without_an_end(harness: Any, wire: Any) -> None:
    served = harness(timeout_s=0.0001)
    client = wire(served)
    client.init()
    assert client.update(GOOD) == 1
    assert client.update(GOOD, 1.0) == 1
    assert client.update(GOOD) == 1
    assert client.is_closed()
