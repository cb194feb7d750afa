"""Rewards that become known later: steps are held back, and what arrives is final, also if the process is killed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from naive_replay import contents, make_obs, pump

from surreal.base.errors import BadValueError
from surreal.distributed.experience.sender import ExpSender
from surreal.distributed.experience.single_steps import Amendments

LONG_S = 1e6


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def send(sender: ExpSender, name: int, *, done: bool = False, within_s: float | None = LONG_S) -> int:
    """Send the step from observation `name` to `name + 1` with reward 0."""
    obs = [make_obs(name, is_dict=False), make_obs(name + 1, is_dict=False)]
    return sender.send(obs, float(name), 0.0, done, amend_within_s=within_s)


def rewards(replay: Any) -> dict[int, float]:
    return {name: transition.reward for name, transition in contents(replay).items()}


@pytest.mark.parametrize("lookahead", [0, 2])
def test_steps_leave_in_order_as_soon_as_their_rewards_are_final(run: Any, lookahead: int) -> None:
    sender, replay = run.sender(chunk_steps=1, lookahead=lookahead), run.replay()
    ids = [send(sender, name) for name in range(5)]
    sender.flush()
    assert sender.metrics()["sender/steps_total"] == 0
    assert sender.amend(ids[1], reward=1.5)
    assert sender.amend(ids[0], reward=0.5)
    sender.flush()
    pump(replay, steps=2 - min(lookahead, 2))
    for name in (2, 3, 4):
        assert sender.amend(ids[name], reward=name + 0.5)
    send(sender, 5, done=True, within_s=None)
    sender.flush()
    pump(replay, steps=6)
    assert rewards(replay) == {0: 0.5, 1: 1.5, 2: 2.5, 3: 3.5, 4: 4.5, 5: 0.0}


def test_random_amendments_are_those_of_a_naive_list(run: Any) -> None:
    """Episodes end, chunks leave in between, and other steps are final at once."""
    rng = np.random.default_rng(0)
    sender, replay = run.sender(chunk_steps=7, lookahead=1), run.replay()
    expected: dict[int, float] = {}
    pending: dict[int, int] = {}
    name = 1
    for _ in range(400):
        is_pending, done = rng.random() < 0.4, rng.random() < 0.1
        step_id = send(sender, name, done=done, within_s=LONG_S if is_pending else None)
        expected[name] = 0.0
        if is_pending:
            pending[step_id] = name
        else:
            assert not sender.amend(step_id, reward=9.0)
        while pending and (len(pending) > 12 or rng.random() < 0.4):
            chosen = int(rng.choice(list(pending)))
            amended = pending.pop(chosen)
            expected[amended] = float(amended)
            assert sender.amend(chosen, reward=amended)
        name += 1 + done
    early = sender.metrics()["sender/steps_total"]
    assert early > 100, "steps left while others were held back"
    for step_id, amended in pending.items():
        expected[amended] = float(amended)
        assert sender.amend(step_id, reward=amended)
    assert sender.close()
    pump(replay, steps=400)
    assert rewards(replay) == expected
    metrics = sender.metrics()
    assert metrics["sender/amended_rewards_total"] == sum(reward > 0 for reward in expected.values())
    assert metrics["sender/refused_amendments_total"] == 400 - metrics["sender/amended_rewards_total"]


def test_after_its_deadline_a_step_leaves_as_it_is_and_amendments_are_refused_and_counted(run: Any) -> None:
    clock = Clock()
    sender, replay = run.sender(chunk_steps=1), run.replay()
    sender._amendments = Amendments(clock)
    first, second = send(sender, 0, within_s=5.0), send(sender, 1, within_s=50.0)
    clock.now = 5.0
    assert not sender.amend(first, reward=1.0)
    assert sender.amend(second, reward=2.0)
    assert not sender.amend(second, reward=3.0)
    sender.flush()
    pump(replay, steps=2)
    assert rewards(replay) == {0: 0.0, 1: 2.0}
    metrics = sender.metrics()
    assert metrics["sender/refused_amendments_total"] == 2
    assert metrics["sender/expired_rewards_total"] == metrics["sender/amended_rewards_total"] == 1


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), 3e38])
def test_an_impossible_reward_is_refused_and_the_step_waits_for_another(run: Any, reward: float) -> None:
    sender, replay = run.sender(), run.replay()
    step_id = send(sender, 0)
    with pytest.raises(BadValueError, match="an amended reward is"):
        sender.amend(step_id, reward=reward)
    assert sender.amend(step_id, reward=1.0)
    sender.close()
    pump(replay, steps=1)
    assert rewards(replay) == {0: 1.0}


def test_a_reward_to_be_amended_needs_the_next_observation(run: Any) -> None:
    with pytest.raises(ValueError, match="needs its new_obs"):
        run.sender().send([make_obs(0, is_dict=False)], 0.0, 0.0, False, amend_within_s=1.0)


def test_a_sender_that_is_closed_sends_what_it_held_back(run: Any) -> None:
    sender, replay = run.sender(), run.replay()
    step_id = send(sender, 0)
    assert sender.close()
    assert not sender.amend(step_id, reward=1.0)
    pump(replay, steps=1)
    assert rewards(replay) == {0: 0.0}


PROGRAM = """
import os, signal, sys
import numpy as np
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.sender import ExpSender
sender = ExpSender(RedisClient(sys.argv[1], run=sys.argv[2]), chunk_steps=1, max_delay_s=60.0)
obs = lambda name: np.array([name, -name], np.float32)
ids = [sender.send([obs(i), obs(i + 1)], float(i), 0.0, False, amend_within_s=1e6) for i in range(6)]
for i in (0, 1, 3):
    sender.amend(ids[i], reward=i + 0.5)
sender.flush()
print(int(sender.metrics()["sender/steps_total"]), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_agent_loses_only_steps_that_were_not_acknowledged(run: Any) -> None:
    command = [sys.executable, "-c", PROGRAM, run.address, run.run_id]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.returncode) == ("2", -9), done.stderr
    replay = run.replay()
    pump(replay, steps=2)
    assert rewards(replay) == {0: 0.5, 1: 1.5}
