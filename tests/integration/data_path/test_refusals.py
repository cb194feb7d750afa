"""What is not experience of this stream is refused, and everybody else goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from naive_replay import NaiveReplay, Walker, assert_same, contents, pump_until

from surreal.base.errors import BadValueError, ContractError, ThreadFailedError

STEPS = 300


@pytest.mark.parametrize("damage", ["block", "head", "no block"])
def test_a_damaged_chunk_is_counted_and_the_others_arrive(run: Any, damage: str, caplog: Any) -> None:
    sender, replay = run.sender(), run.replay()
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, STEPS)
    sender.close()
    client, keys = run.client.redis, run.client.shard_keys()
    fields = client.xrange(keys.stream, count=1)[0][1]
    block = keys.block(fields[b"id"].decode())
    if damage == "block":
        client.setrange(block, 0, b"x")
        client.append(block, b"x")
    elif damage == "no block":
        client.delete(block)
    else:
        # Not at its old place, but a chunk is a chunk wherever it lies.
        client.xadd(keys.stream, {**fields, b"head": b"y" + fields[b"head"][1:]})
        client.xadd(keys.stream, {b"something": b"else"})
    first_steps = 0 if damage == "head" else int(own_steps_of(fields[b"head"]))
    pump_until(replay, lambda: replay.metrics()["replay/inserted_steps_total"] >= STEPS - first_steps)
    pump_until(replay, lambda: sum(replay.metrics()[f"replay/{k}_chunks_total"] for k in ("refused", "gone")) >= 1)
    expected = walker.naive.transitions()
    missing = sorted(expected)[:first_steps]
    assert_same(contents(replay), {name: found for name, found in expected.items() if name not in missing})
    assert replay.metrics()["replay/refused_chunks_total"] == (damage != "no block")
    assert ("was refused" in caplog.text) == (damage != "no block")


def own_steps_of(head: bytes) -> int:
    """Own steps of a chunk, from its head (the fifth count)."""
    return int.from_bytes(head[16:20], "little")


def test_experience_of_another_kind_is_refused_with_the_difference(run: Any) -> None:
    first = run.sender(lookahead=2)
    Walker(NaiveReplay(1, 0.5)).walk(first, 20)
    first.flush()
    second = run.sender(lookahead=1)
    with pytest.raises(ContractError, match=run.run_id) as caught:
        Walker(NaiveReplay(1, 0.5), is_dict=True).walk(second, 20)
        second.flush()
    text = "\n".join(caught.value.diff)
    assert "lookahead: 2 -> 1" in text
    assert "obs" in text
    assert not second.close(), "the refused chunk is dropped when the sender is closed"


def test_a_learner_that_needs_more_lookahead_is_told_so(run: Any) -> None:
    sender, replay = run.sender(lookahead=1), run.replay(n_step=3)
    Walker(NaiveReplay(3, 0.5)).walk(sender, 20)
    sender.flush()
    replay.start_threads()
    with pytest.raises(ThreadFailedError, match=r"n_step is 3, but .* lookahead of 1; send with lookahead >= 2"):
        next(iter(replay.batch_iterator()))


def test_entries_of_somebody_else_are_passed_by(run: Any) -> None:
    sender, replay = run.sender(), run.replay()
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 50)
    sender.flush()
    for _ in range(40):  # more than are read at a time
        run.client.redis.xadd(run.client.shard_keys().stream, {b"something": b"else", b"id": b"\xff"})
    walker.walk(sender, 50)
    sender.close()
    pump_until(replay, lambda: replay.metrics()["replay/inserted_steps_total"] >= 100)
    assert_same(contents(replay), walker.naive.transitions())


@pytest.mark.parametrize("obs", [np.zeros(3, np.float32), np.zeros((), np.float32), {"a": np.zeros(2)}])
def test_a_step_of_another_shape_is_refused_and_the_sender_goes_on(run: Any, obs: Any) -> None:
    sender, replay = run.sender(), run.replay()
    walker = Walker(NaiveReplay(1, 0.5))
    walker.walk(sender, 5)
    for wrong in ([obs, obs], [walker.obs, obs]):
        with pytest.raises((ValueError, TypeError)):
            sender.send(wrong, 0, 0.0, False)
    walker.walk(sender, 5)
    sender.close()
    pump_until(replay, lambda: replay.metrics()["replay/inserted_steps_total"] >= 10)
    got, expected = contents(replay), walker.naive.transitions()
    assert got.keys() == expected.keys()


def test_a_truncated_step_needs_its_new_obs(run: Any) -> None:
    with pytest.raises(ValueError, match="needs its new_obs"):
        run.sender().send([np.zeros(2)], 0, 0.0, True, truncated=True)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300, 3e38, -3e38, 10**400])
@pytest.mark.parametrize("where", ["obs", "reward", "extra"])
def test_a_step_with_an_impossible_number_is_refused_and_the_others_arrive(run: Any, where: str, bad: float) -> None:
    sender, replay = run.sender(), run.replay(start_size=1)
    obs = [np.full(3, number, np.float32) for number in range(5)]

    def send(number: int, spoilt: str = "") -> None:
        new_obs = np.array([bad, 0, 0]) if spoilt == "obs" else obs[number + 1]
        reward, value = (bad if spoilt == name else 1.0 for name in ("reward", "extra"))
        sender.send([obs[number], new_obs], 0, reward, False, extras={"value": value})

    send(0)
    with pytest.raises(BadValueError, match="numbers must be finite, and their magnitude at most") as caught:
        send(1, where)
    assert f"{where}{'.value' if where == 'extra' else ''} is " in str(caught.value)
    send(3)
    sender.close()
    pump_until(replay, lambda: len(replay) == 2)
