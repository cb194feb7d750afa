"""Sessions that name a policy, on a server whose loop acts for all others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from surreal.base.types import Action


class Always:
    """An agent that takes one action everywhere."""

    def __init__(self, action: int) -> None:
        self.model = SimpleNamespace(version=0)
        self.action, self.rows = action, 0
        self.explored = False
        self.shows: frozenset[str] = frozenset()

    def act_batch(self, obs: Any, explore: Any, slots: Any, is_first: Any, action_mask: Any = None) -> Action:
        self.rows += len(slots)
        self.explored |= bool(explore.any())
        outputs = {"q_values": np.tile(np.float32([self.action, 9]), (len(slots), 1))} if self.shows else {}
        return Action(np.full(len(slots), self.action), {}, 0, outputs)


def test_each_session_gets_the_actions_of_the_policy_that_it_names(harness: Any, wire: Any) -> None:
    ones, zeros = Always(1), Always(0)
    served = harness(pool={"policies": {"ones": ones, "zeros": zeros}})
    clients = [(wire(served), policy, action) for policy, action in (("ones", 1), ("zeros", 0), (None, 0), (None, 1))]
    for client, policy, _ in clients:
        more = {} if policy is None else {"policy": policy}
        assert client.init(**more) == {"response": "ready"}
    for reward in (None, 1.0, 1.0):
        for client, policy, action in clients:
            state = [-1 if policy == "ones" or action == 0 else 1, 0]  # the server's own acts by the sign
            assert client.update(state, reward) == action
    for client, _, _ in clients:
        assert client.update([0, 0], 1.0, terminal=True) is None
    served.wait(lambda: sum(row.kind == 2 for row in served.rows) == 2)
    assert len(served.rows) == 8  # the loop saw its own two sessions only
    assert (ones.rows, zeros.rows) == (3, 3)
    assert not ones.explored
    for client, _, _ in clients:
        client.close()
    served.wait(lambda: served.server.metrics()["rlx/connections_count"] == 0)
    assert all(row.env_ids in (2, 3) for row in served.rows)


def test_a_session_may_change_its_policy(harness: Any, wire: Any) -> None:
    served = harness(pool={"policies": {"ones": Always(1)}})
    client = wire(served)
    for _ in range(2):
        client.init(policy="ones", want=["q_values"])
        reply = client.ask(command="update", reward=None, state=[-1, 0], terminal=False)
        assert reply["data"] == 1
        assert reply["q_values"].tolist() == [1, 9]
        client.init()  # in the middle of an episode
        assert client.update([-1, 0]) == 0
    assert [row.record for row in served.rows] == [True, True]


def test_bad_states_are_refused_as_for_others(harness: Any, wire: Any) -> None:
    served = harness(pool={"policies": {"ones": Always(1)}})
    client = wire(served)
    client.init(policy="ones")
    for _ in range(3):
        client.update(np.zeros(2, np.float32))
        bad = np.array([np.nan, 0], np.float32)
        assert client.ask(command="update", reward=1.0, state=bad, terminal=False)["response"] == "error"
    assert client.update([0, 0]) == 1


@pytest.mark.parametrize("name", ["onse", "", 5, ["ones"], "x" * 100_000])
def test_unknown_policy_is_an_error_that_names_the_nearest(harness: Any, wire: Any, name: Any) -> None:
    client = wire(harness(pool={"policies": {"ones": Always(1)}}))
    client.init()
    message = client.init(policy=name)["message"]
    assert "is not one of ones" in message
    assert ("did you mean ones?" in message) == (name == "onse")
    assert len(message) < 200
    assert client.update([-1, 0]) == 0  # the session is as it was
