"""What a well-behaved client gets from a server."""

from __future__ import annotations

import socket
import ssl
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image

from surreal.base.types import StepKind
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.rlx.pool.states import RewardReader
from surreal.rlx.protocol.codec import encode
from surreal.rlx.protocol.errors import RlxServerError
from surreal.rlx.protocol.framing import FrameReader, frame
from surreal.rlx.server.server import RlxServer
from surreal.rlx.server.settings import ServerSettings, load_tls


def kinds(served: Any) -> list[str]:
    return [StepKind(int(row.kind)).name for row in served.rows]


def test_an_episode_from_beginning_to_end(harness: Any, wire: Any) -> None:
    served = harness()
    client = wire(served)
    assert client.init() == {"response": "ready"}
    assert client.update([1, 0]) == 1
    assert client.update([-1, 0], 0.5) == 0
    assert client.update([2, 2], 1.0, terminal=True) is None
    assert client.update([1, 1]) == 1
    assert kinds(served) == ["FIRST", "MID", "LAST", "FIRST"]
    assert [float(row.reward) for row in served.rows] == [0.0, 0.5, 1.0, 0.0]
    assert served.rows[2].obs.tolist() == [2, 2]
    assert [bool(row.terminated) for row in served.rows] == [False, False, True, False]
    assert all(row.record and row.explore for row in served.rows)
    assert served.pool.metrics()["env/episode_return_recent"] == 1.5


def test_truncated_is_no_end_for_the_learner(harness: Any, wire: Any) -> None:
    served = harness()
    client = wire(served)
    client.init()
    client.update([1, 0])
    assert client.update([1, 0], 1.0, terminal=True, truncated=True) is None
    served.wait(lambda: kinds(served) == ["FIRST", "LAST"])
    assert (bool(served.rows[1].terminated), bool(served.rows[1].truncated)) == (False, True)


def test_terminal_state_may_be_left_out_but_not_a_truncated_one(harness: Any, wire: Any) -> None:
    served = harness()
    client = wire(served)
    client.init()
    client.update([1, 0])
    assert client.ask(command="update", reward=1, state=None, terminal=True, truncated=True)["response"] == "error"
    assert client.update(None, 1.0, terminal=True) is None
    served.wait(lambda: kinds(served) == ["FIRST", "LAST"])


def test_episode_that_ends_before_any_action_leaves_nothing(harness: Any, wire: Any) -> None:
    served = harness()
    client = wire(served)
    client.init()
    assert client.update([1, 0], None, terminal=True) is None
    assert client.update([1, 0]) == 1
    assert kinds(served) == ["FIRST"]


def test_reset_in_mid_episode_cuts_it(harness: Any, wire: Any) -> None:
    served = harness()
    client = wire(served)
    client.init()
    assert client.ask(command="reset") == {"response": "done"}
    client.update([1, 0])
    client.update([1, 0], 1.0)
    assert client.ask(command="reset") == {"response": "done"}
    client.update([1, 0])
    assert kinds(served) == ["FIRST", "MID", "FIRST"]
    assert served.closed == [0]


def test_lost_connection_cuts_the_episode_and_the_slot_is_used_again(harness: Any, wire: Any) -> None:
    served = harness()
    first = wire(served)
    first.init()
    first.update([1, 0])
    first.close()
    served.wait(lambda: served.closed == [0])
    second = wire(served)
    second.init()
    second.update([1, 0])
    assert [int(row.env_ids) for row in served.rows] == [0, 0]


def test_exploiting_session_neither_explores_nor_is_recorded(harness: Any, wire: Any) -> None:
    served = harness()
    exploiting, training = wire(served), wire(served)
    assert exploiting.ask(command="init", exploit=True) == {"response": "ready"}
    training.init()
    exploiting.update([1, 0])
    exploiting.update([1, 0], 1.0)
    training.update([1, 0])
    assert [(row.explore, row.record) for row in served.rows] == [(False, False), (False, False), (True, True)]


def test_server_may_exploit_always(harness: Any, wire: Any) -> None:
    served = harness(is_exploiting=True)
    client = wire(served)
    client.init()
    client.update([1, 0])
    assert not served.rows[0].record


def test_pipelined_requests_are_answered_in_order(harness: Any, wire: Any) -> None:
    served = harness()
    client = wire(served)
    messages: list[dict[str, Any]] = [{"command": "init"}]
    for i in range(200):
        state, reward = [(-1) ** i, i % 9], None if i == 0 else 1.0
        messages.append({"command": "update", "reward": reward, "state": state, "terminal": False})
        if i % 10 == 0:
            messages.append({"command": "update_metrics", "data": [{"name": "n", "y": i}]})
    client.sock.sendall(b"".join(frame(encode(message)) for message in messages))
    replies = [client.recv() for _ in messages]
    expected = []
    for message in messages:
        if message["command"] == "update":
            expected.append({"response": "action", "data": int(message["state"][0] > 0)})
        else:
            expected.append({"response": "ready" if message["command"] == "init" else "done"})
    assert replies == expected
    assert [int(row.obs[1]) for row in served.rows] == [i % 9 for i in range(200)]


def test_peer_that_stopped_writing_still_gets_its_answers(harness: Any, wire: Any) -> None:
    served = harness()
    served.may_act.clear()
    client = wire(served)
    client.init()
    for reward in (None, 1.0, 1.0):
        client.send(command="update", reward=reward, state=[1, 0], terminal=False)
    client.sock.shutdown(socket.SHUT_WR)
    served.may_act.set()
    assert [client.recv()["data"] for _ in range(3)] == [1, 1, 1]
    assert client.is_closed()


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"command": "update", "state": [1, 2]}, "init comes first"),
        ({"command": "reset"}, "init comes first"),
        ({"command": "fly"}, "command 'fly' is not one of"),
        ({"command": np.arange(3)}, "command a ndarray is not one of"),
        ({}, "command None is not one of"),
        ({"command": "init", "exploit": "yes"}, "exploit must be true or false"),
        ({"command": "update_metrics", "data": [{"name": "", "y": 1}]}, "1 to 200 characters"),
        ({"command": "update_metrics", "data": [{"name": "n", "y": "x"}]}, "must be a number"),
        ({"command": "update_metrics", "data": [{"name": "n", "y": [1, 2]}]}, "must be one number, got 2"),
        ({"command": "update_metrics", "data": [{"name": "n", "y": 1, "x": -1}]}, "x of metric n"),
        ({"command": "update_metrics", "data": [{"name": "n", "y": 1, "x": 2**62}]}, "from 0 to 1000000000000"),
        ({"command": "update_metrics", "data": [{"name": "n", "y": 1, "x": float("nan")}]}, "x of metric n"),
        ({"command": "update_metrics", "data": [{"name": "n", "y": float("inf")}]}, "y of metric n must be finite"),
        ({"command": "update_metrics", "method": "histogram", "name": "n", "y": [1, float("nan")]}, "must be finite"),
        ({"command": "update_metrics", "data": [{"name": "n", "y": 1e300}]}, "range of a float32"),
        ({"command": "update_metrics", "data": [{"name": "n", "y": 1, "method": "pie"}]}, "scalar or histogram"),
        ({"command": "update_metrics", "data": ["n"]}, "a metric must be a dict"),
    ],
)
def test_request_that_cannot_be_answered_is_an_error_and_the_connection_stays(
    harness: Any, wire: Any, message: dict[str, Any], expected: str
) -> None:
    client = wire(harness())
    reply = client.ask(**message)
    assert reply["response"] == "error"
    assert expected in reply["message"]
    assert client.init() == {"response": "ready"}


def test_state_that_does_not_fit_changes_nothing(harness: Any, wire: Any) -> None:
    served = harness()
    client = wire(served)
    client.init()
    client.update([1, 0])
    reply = client.ask(command="update", reward=1.0, state=[1, 2, 3], terminal=False)
    assert "shape (2,) and dtype float32, got shape (3,)" in reply["message"]
    assert "empty list" in client.ask(command="update", state=[1, 0], reward=[], terminal=False)["message"]
    assert client.update([1, 0], 1.0) == 1
    assert kinds(served) == ["FIRST", "MID"]


def test_metrics_reach_their_sink_in_both_forms(harness: Any, wire: Any) -> None:
    served = harness()
    client = wire(served)
    records = [
        {"method": "scalar", "name": "speed", "y": 2.5, "x": 7},
        {"method": "histogram", "name": "sizes", "y": [1, 2, 3], "x": None},
    ]
    assert client.ask(command="update_metrics", data=records) == {"response": "done"}
    assert client.ask(command="update_metrics", method="scalar", name="top", y=np.float32(1))["response"] == "done"
    assert served.metrics[0] == ("scalar", "client/speed", 2.5, 7)
    assert served.metrics[1][:2] == ("histogram", "client/sizes")
    assert served.metrics[1][2].tolist() == [1, 2, 3]
    assert served.metrics[2] == ("scalar", "client/top", 1.0, None)


def test_metrics_of_clients_are_bounded(harness: Any, wire: Any) -> None:
    served = harness()
    client = wire(served)
    client.init()
    data = [{"method": "scalar", "name": "n", "y": 1.0, "x": None}] * 1000
    for _ in range(5):
        assert client.ask(command="update_metrics", data=data) == {"response": "done"}
    assert len(served.metrics) < 1000
    assert served.server.metrics()["rlx/dropped_metrics_total"] == 5000 - len(served.metrics)


def test_metrics_of_clients_are_nobody_elses(harness: Any, wire: Any) -> None:
    served = harness()
    client = wire(served)
    for name in ("learner/loss", "client/own", "/x"):
        assert client.ask(command="update_metrics", name=name, y=1)["response"] == "done"
    assert [record[1] for record in served.metrics] == ["client/learner/loss", "client/own", "client//x"]


def test_list_rewards_become_their_weighted_sum(harness: Any, wire: Any) -> None:
    served = harness(rewards=RewardReader([1.0, -2.0]))
    client = wire(served)
    client.init()
    client.update([1, 0])
    client.update([1, 0], [3.0, 0.5])
    assert float(served.rows[1].reward) == 2.0


def test_images_arrays_and_lists_reach_a_space_of_bytes_alike(harness: Any, wire: Any) -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    served = harness(spaces.Box(0, 255, (3, 4), np.uint8))
    client = wire(served)
    client.init()
    for index, state in enumerate([pixels, pixels.tolist(), Image.fromarray(pixels)]):
        client.update(state, None if index == 0 else 1.0)
    assert all(row.obs.tolist() == pixels.tolist() for row in served.rows)


def test_environment_without_state(harness: Any, wire: Any) -> None:
    served = harness(spaces.Discrete(1))
    client = wire(served)
    client.init()
    for state in (None, []):
        assert client.update(state) == 0
        assert client.update(state, 1.0, terminal=True) is None


def test_states_of_any_form_where_no_space_is_configured(harness: Any, wire: Any) -> None:
    served = harness(None)
    client = wire(served)
    client.init()
    image = Image.new("L", (2, 1), 255)
    assert client.update({"a": [1, "x"], "b": None}) == 0
    assert client.update(image, 1.0) == 0
    assert served.rows[0].obs.item() == {"a": [1, "x"], "b": None}
    assert not served.rows[0].record


def test_frames_are_stacked_here(harness: Any, wire: Any) -> None:
    served = harness(pool={"frame_stack": 3})
    client = wire(served)
    client.init()
    for index in range(4):
        client.update([index, 0], None if index == 0 else 1.0)
    client.update([4, 0], 1.0, terminal=True)
    client.update([5, 0])
    firsts = [row.obs[:, 0].tolist() for row in served.rows]
    assert firsts == [[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4], [5, 5, 5]]


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (spaces.Discrete(3, start=4), int), (spaces.Box(-1, 1, (2,), np.float32), np.ndarray),
        (spaces.Box(-1, 1, (), np.float32), float), (spaces.MultiDiscrete([2, 3]), np.ndarray),
        (spaces.Dict({"a": spaces.Discrete(2)}), dict), (spaces.Tuple([spaces.Discrete(2)]), list),
    ],
)  # fmt: skip
def test_actions_have_the_form_of_their_space(harness: Any, wire: Any, space: Any, kind: type) -> None:
    client = wire(harness(action_space=space))
    client.init()
    action = client.update([1, 0])
    assert isinstance(action, kind)
    if isinstance(space, spaces.Discrete):
        assert action in (4, 5)
    elif isinstance(space, spaces.Box):
        assert np.asarray(action, np.float32).shape == space.shape


def test_token_is_asked_for(harness: Any, wire: Any) -> None:
    served = harness(token="secret")
    good = wire(served)
    assert good.init(token="secret") == {"response": "ready"}
    assert good.update([1, 0]) == 1
    assert good.init() == {"response": "ready"}  # it was shown already
    for message in (
        {"command": "init"}, {"command": "init", "token": "wrong"}, {"command": "init", "token": 5},
        {"command": "reset"}, {"command": "update", "state": [1, 0]},
        {"command": "update_metrics", "name": "n", "y": 1}, {"command": "bogus"}, {"command": 5}, {},
    ):  # fmt: skip
        stranger = wire(served)
        assert stranger.ask(**message)["response"] == "error"
        assert stranger.is_closed()


def test_stranger_may_say_little(harness: Any, wire: Any) -> None:
    served = harness(spaces.Box(-1, 1, (100, 100), np.float32))
    stranger, known = wire(served), wire(served)
    stranger.sock.sendall(b"70000:")
    assert "over the limit of 65536" in stranger.recv()["message"]
    assert stranger.is_closed()
    known.init()
    assert known.update(np.zeros((100, 100))) == 0
    assert known.update(np.zeros((100, 100)), 1.0) == 0


def test_old_connection_is_closed_at_the_end_of_an_episode_after_the_reply(harness: Any, wire: Any) -> None:
    served = harness(timeout_s=0.05)
    client = wire(served)
    client.init()
    assert client.update([1, 0]) == 1
    time.sleep(0.06)
    assert client.update([1, 0], 1.0) == 1
    assert client.update([1, 0], 1.0, terminal=True) is None
    assert client.is_closed()
    served.wait(lambda: kinds(served) == ["FIRST", "MID", "LAST"])


def test_servers_share_a_port(harness: Any) -> None:
    first = harness(reuses_port=True)
    second = RlxServer(RlxEnvPool(spaces.Discrete(2)), ServerSettings(port=first.port, reuses_port=True))
    with second:
        assert second.port == first.port


def test_taken_port_is_one_clear_error(harness: Any) -> None:
    served = harness()
    server = RlxServer(RlxEnvPool(spaces.Discrete(2)), ServerSettings(port=served.port))
    with pytest.raises(RlxServerError, match=f"cannot listen on 127.0.0.1:{served.port}"):
        server.start()
    server.close()


def test_missing_certificate_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RlxServerError, match="no TLS with"):
        load_tls(tmp_path / "none.pem", None)


def test_tls(harness: Any, certificate: tuple[Path, Path]) -> None:
    served = harness(tls=load_tls(*certificate))
    context = ssl.create_default_context(cafile=str(certificate[0]))
    raw = socket.create_connection(("127.0.0.1", served.port), timeout=60)
    with raw, context.wrap_socket(raw, server_hostname="localhost") as sock:
        sock.sendall(frame(encode({"command": "init"})))
        reader, found = FrameReader(), []
        while not found:
            found = reader.feed(sock.recv(1000))
    assert found == [encode({"response": "ready"})]
    # A peer that speaks no TLS is nobody's trouble.
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as raw:
        raw.sendall(frame(encode({"command": "init"})))
        while raw.recv(1000):
            pass


def test_it_is_known_how_long_sessions_wait_for_their_actions(harness: Any, wire: Any) -> None:
    served = harness()
    clients = [wire(served) for _ in range(3)]
    for client in clients:
        client.init()
    served.may_act.clear()
    began_s = time.monotonic()
    for client in clients:
        client.send(command="update", reward=None, state=[1, 0], terminal=False)
    served.wait(lambda: served.server._hub.num_waiting == 3)
    held_s = time.monotonic()
    served.wait(lambda: time.monotonic() > held_s + 0.2)
    freed_s = time.monotonic()
    served.may_act.set()
    assert [client.recv()["data"] for client in clients] == [1, 1, 1]
    ended_s = time.monotonic()
    metrics = served.server.metrics()
    each_s = metrics["rlx/waiting_sessions_count"] / metrics["rlx/answers_per_s"]
    assert 0.9 * (freed_s - held_s) <= each_s <= 1.1 * (ended_s - began_s)


def test_an_executed_action_belongs_to_the_step_whose_reward_it_comes_with(harness: Any, wire: Any) -> None:
    served = harness(pool={"interventions": True})
    client = wire(served)
    client.init()
    client.update([1, 0])
    client.ask(command="update", reward=0.5, state=[-1, 0], terminal=False, executed_action=0)
    client.update([1, 0], 0.5)
    client.ask(command="update", reward=1.0, state=[2, 2], terminal=True, executed_action=1)
    served.wait(lambda: kinds(served) == ["FIRST", "MID", "MID", "LAST"])
    told = [(row.info.get("is_intervention"), row.info.get("executed_action")) for row in served.rows]
    assert told == [(None, None), ([True], [0]), (None, None), ([True], [1])]


@pytest.mark.parametrize(
    ("action", "message"), [(7, "is not in"), ("left", "is not in"), (float("nan"), "is not in"), ([0, 1], "is not in")]
)
def test_an_impossible_executed_action_is_refused_and_can_be_sent_again(
    harness: Any, wire: Any, action: Any, message: str
) -> None:
    served = harness(pool={"interventions": True})
    client = wire(served)
    client.init()
    client.update([1, 0])
    reply = client.ask(command="update", reward=0.5, state=[1, 0], terminal=False, executed_action=action)
    assert reply["response"] == "error"
    assert message in reply["message"]
    assert client.update([1, 0], 0.5) == 1


def test_executed_actions_need_a_run_that_records_them_and_an_action(harness: Any, wire: Any) -> None:
    served = harness()
    client = wire(served)
    client.init()
    reply = client.ask(command="update", reward=None, state=[1, 0], terminal=False, executed_action=0)
    assert "first update of an episode" in reply["message"]
    client.update([1, 0])
    reply = client.ask(command="update", reward=0.5, state=[1, 0], terminal=False, executed_action=0)
    assert "env.interventions" in reply["message"]
