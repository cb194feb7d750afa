"""The quick way to read updates gives what the codec gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from surreal.rlx.codec import decode, encode
from surreal.rlx.framing import frame
from surreal.rlx.layouts import Layouts


def update(state: Any, reward: Any = 1.0, *, terminal: bool = False, **more: Any) -> dict[str, Any]:
    return {"command": "update", "reward": reward, "state": state, "terminal": terminal, **more}


def learnt(message: dict[str, Any]) -> Layouts:
    layouts, payload = Layouts(), encode(message)
    layouts.learn(payload, decode(payload))
    return layouts


@pytest.mark.parametrize(
    "order", [("command", "reward", "state", "terminal"), ("terminal", "state", "command", "reward")]
)
def test_other_values_in_the_same_layout(order: tuple[str, ...]) -> None:
    first, second = update(np.arange(6, dtype=np.float32)), update(np.full(6, np.nan, np.float32), -7.5, terminal=True)
    first, second = ({key: message[key] for key in order} for message in (first, second))
    found = learnt(first).read(frame(encode(second)))
    assert found is not None
    assert found.keys() == second.keys()
    assert (found["command"], found["reward"], found["terminal"]) == ("update", -7.5, True)
    np.testing.assert_array_equal(found["state"], second["state"])
    assert found["state"].dtype == np.float32


@pytest.mark.parametrize(
    "other",
    [
        update(np.zeros(5, np.float32)),
        update(np.zeros(6, np.int32)),
        update(np.zeros((2, 3), np.float32)),
        update(np.zeros(6, np.float32), None),
        update(np.zeros(6, np.float32), truncated=False),
        update(np.zeros(6, np.float32), 3),
        {"command": "updata", "reward": 1.0, "state": np.zeros(6, np.float32), "terminal": False},
        {"command": "update", "rewar2": 1.0, "state": np.zeros(6, np.float32), "terminal": False},
        {"command": "reset"},
    ],
)
def test_any_other_message_is_left_to_the_codec(other: dict[str, Any]) -> None:
    assert learnt(update(np.zeros(6, np.float32))).read(frame(encode(other))) is None


@pytest.mark.parametrize(
    "message",
    [
        update([1.0, 2.0]), update({"a": 1}), update(None), update(np.zeros(0)), update(np.array(["a"])),
        update(np.array([True])), update(np.zeros(3), more=np.zeros(2000)), update(np.zeros(3), more=[1]),
        {"command": "reset", "state": np.zeros(3), "terminal": False}, {"command": "update", "state": np.zeros(3)},
    ],
)  # fmt: skip
def test_unusual_messages_have_no_layout(message: dict[str, Any]) -> None:
    assert learnt(message).read(frame(encode(message))) is None


def test_further_keys_keep_their_values() -> None:
    message = update(np.zeros(3), truncated=False, sid="x", seed=5)
    found = learnt(message).read(frame(encode(message)))
    assert found is not None
    assert (found["truncated"], found["sid"], found["seed"]) == (False, "x", 5)


def test_only_a_few_are_remembered() -> None:
    layouts = Layouts()
    for size in range(1, 20):
        payload = encode(update(np.zeros(size)))
        layouts.learn(payload, decode(payload))
    assert sum(layouts.read(frame(encode(update(np.zeros(size))))) is not None for size in range(1, 20)) == 4
