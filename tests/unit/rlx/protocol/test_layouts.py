"""The quick way to read updates gives what the codec gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from surreal.rlx.pool.states import StateReader
from surreal.rlx.protocol.codec import decode, encode
from surreal.rlx.protocol.framing import frame
from surreal.rlx.protocol.layouts import Layouts


def update(state: Any, reward: Any = 1.0, *, terminal: bool = False, **more: Any) -> dict[str, Any]:
    return {"command": "update", "reward": reward, "state": state, "terminal": terminal, **more}


def learnt(message: dict[str, Any], space: spaces.Space[Any] | None = None) -> Layouts:
    layouts = Layouts(None if space is None else StateReader(space).plain)
    payload = encode(message)
    layouts.learn(payload, decode(payload))
    return layouts


def read(layouts: Layouts, message: dict[str, Any]) -> dict[str, Any] | None:
    """Read as a connection does: out of a buffer that goes on after the frame."""
    data = frame(encode(message))
    layout = layouts.get(len(data))
    values = None if layout is None else layout.read(memoryview(bytearray(data + b"more")))
    return None if layout is None or values is None else layout.message(*values)


@pytest.mark.parametrize(
    "order", [("command", "reward", "state", "terminal"), ("terminal", "state", "command", "reward")]
)
@pytest.mark.parametrize("rewards", [(1.0, -7.5), (1, -7), (2**40, -(2**41)), (None, None)])
def test_other_values_in_the_same_layout(order: tuple[str, ...], rewards: tuple[Any, Any]) -> None:
    states = np.arange(6, dtype=np.float32), np.full(6, np.nan, np.float32)
    messages = [update(state, reward) for state, reward in zip(states, rewards, strict=True)]
    first, second = ({key: message[key] for key in order} for message in messages)
    found = read(learnt(first), second)
    assert found is not None
    assert found.keys() == second.keys()
    assert (found["command"], found["reward"], found["terminal"]) == ("update", rewards[1], False)
    assert type(found["reward"]) is type(rewards[1])
    np.testing.assert_array_equal(found["state"], second["state"])
    assert found["state"].dtype == np.float32


def test_message_without_a_reward() -> None:
    message = {"command": "update", "state": np.arange(3), "terminal": False}
    found = read(learnt(message), message)
    assert found is not None
    assert found["reward"] is None
    assert found["state"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "other",
    [
        update(np.zeros(5, np.float32)),
        update(np.zeros(6, np.int32)),
        update(np.zeros((2, 3), np.float32)),
        update(np.zeros(6, np.float32), None),
        update(np.zeros(6, np.float32), truncated=False),
        update(np.zeros(6, np.float32), 3),
        update(np.zeros(6, np.float32), terminal=True),
        {"command": "updata", "reward": 1.0, "state": np.zeros(6, np.float32), "terminal": False},
        {"command": "update", "rewar2": 1.0, "state": np.zeros(6, np.float32), "terminal": False},
        {"command": "reset"},
    ],
)
def test_any_other_message_is_left_to_the_codec(other: dict[str, Any]) -> None:
    assert read(learnt(update(np.zeros(6, np.float32))), other) is None


def test_every_byte_around_the_values_counts() -> None:
    message = update(np.zeros(2, np.float32), 1.0)
    data = frame(encode(message))
    layout = learnt(message).get(len(data))
    assert layout is not None
    changed = [bytes([*data[:i], data[i] ^ 1, *data[i + 1 :]]) for i in range(len(data))]
    read_all_the_same = [i for i, other in enumerate(changed) if layout.read(other) is not None]
    assert len(read_all_the_same) == 2 * 4 + 8


@pytest.mark.parametrize(
    "message",
    [
        update([1.0, 2.0]), update({"a": 1}), update(None), update(np.zeros(0)), update(np.array(["a"])),
        update(np.array([True])), update(np.zeros(3), more=np.zeros(2000)), update(np.zeros(3), more=[1]),
        update(np.zeros(3), [1.0]), update(np.zeros(3), reward=True), update(np.zeros(3), terminal=True),
        update(np.zeros(3), truncated=True), update(np.zeros(3), truncated=np.zeros(2)),
        {"command": "reset", "state": np.zeros(3), "terminal": False}, {"command": "update", "state": np.zeros(3)},
    ],
)  # fmt: skip
def test_unusual_messages_have_no_layout(message: dict[str, Any]) -> None:
    assert read(learnt(message), message) is None


def test_further_keys_are_part_of_the_layout() -> None:
    message = update(np.zeros(3), truncated=False, sid="x", seed=5)
    layouts = learnt(message)
    assert read(layouts, message) is not None
    assert read(layouts, {**message, "seed": 6}) is None
    assert read(layouts, {**message, "truncated": True}) is None


@pytest.mark.parametrize(
    ("space", "state", "is_plain"),
    [
        (spaces.Box(-1, 1, (3,), np.float32), np.zeros(3, np.float32), True),
        (spaces.Box(-1, 1, (3,), np.float32), np.zeros(3, np.float64), False),
        (spaces.Box(-1, 1, (3,), np.float32), np.zeros(3, ">f4"), False),
        (spaces.Box(-1, 1, (3,), np.float32), np.zeros((3, 1), np.float32), False),
        (spaces.MultiDiscrete([2, 2, 2]), np.zeros(3, np.int64), False),
        (spaces.Dict({"a": spaces.Box(-1, 1, (3,), np.float32)}), np.zeros(3, np.float32), False),
        (None, np.zeros(3, np.float32), False),
    ],
)
def test_bytes_of_a_state_are_an_observation_only_if_nothing_is_to_be_converted_or_checked(
    space: spaces.Space[Any] | None, state: Any, is_plain: bool
) -> None:
    message = update(state)
    layout = learnt(message, space).get(len(frame(encode(message))))
    assert layout is not None
    assert layout.is_plain is is_plain


def test_only_a_few_are_remembered() -> None:
    layouts = Layouts()
    for size in range(1, 20):
        payload = encode(update(np.zeros(size)))
        layouts.learn(payload, decode(payload))
    assert sum(read(layouts, update(np.zeros(size))) is not None for size in range(1, 20)) == 4


def test_a_message_with_an_executed_action_is_decoded() -> None:
    message = update(np.arange(2, dtype=np.float32), 1.0, executed_action=1)
    assert read(learnt(message), message) is None
