"""The client for Godot 3: its codec, sessions with a real server, and lost connections."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

ROOT = Path(__file__).parents[4]
SCRIPTS = Path(__file__).parent / "godot"
VECTORS = ROOT / "tests" / "golden" / "rlx_vectors.json"
SPACE = spaces.Box(-100, 100, (2,), np.float32)
Start = Callable[..., "subprocess.Popen[str]"]


def positive(obs: Any, count: int) -> Any:
    return (obs[:, 0] > 0).astype(np.int64)


@pytest.fixture
def start(require_tool: Any, tmp_path: Path) -> Iterator[Start]:
    """Start a script of `godot/` with options."""
    godot, started = require_tool("godot3-server"), []

    def begin(script: str, *options: str, **variables: str) -> subprocess.Popen[str]:
        command = [godot, "--path", ROOT / "clients" / "godot", "-s", SCRIPTS / script, *options]
        environment = os.environ | {"HOME": str(tmp_path), **variables}
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def lines(process: subprocess.Popen[str]) -> list[str]:
    """Wait for the end of a script, and return the lines that it printed."""
    output, _ = process.communicate(timeout=60)
    return [line for line in output.splitlines() if line.strip() and not line.startswith("Godot Engine")]


def play(
    start: Start, address: str, episodes: int = 5, hz: float = 0, *more: str, **variables: str
) -> subprocess.Popen[str]:
    options = ("--rlx-server", address, "--episodes", str(episodes), "--hz", str(hz), *more)
    return start("play.gd", *options, **variables)


def test_golden_vectors_values_refusals_and_frames(start: Start) -> None:
    assert len(json.loads(VECTORS.read_text())) == 14
    assert lines(start("codec.gd", "--vectors", str(VECTORS)))[-1] == "all is well"


def test_a_reward_may_be_amended_after_its_episode(start: Start, serve: Any) -> None:
    served = serve(observation_space=SPACE, policy=positive, max_amend_s=60.0)
    printed = lines(play(start, served.address, 1, 0, "--amend"))
    assert printed == ["ready", "episode 1", "amended: True", "amended: False", "disconnected: disconnected"]


def test_a_session_may_name_a_policy_and_want_its_q_values(start: Start, serve: Any) -> None:
    served = serve(observation_space=SPACE)  # whose own policy takes action 0
    assert lines(play(start, served.address, 1, 0, "--policy", "ones")) == [
        "ready",
        "episode 1",
        "disconnected: disconnected",
    ]
    assert served.episodes == []  # of its own policy


@pytest.mark.parametrize("scheme", ["", "rlx://", "ws://"])
def test_sessions_with_a_real_server(start: Start, serve: Any, scheme: str) -> None:
    served = serve(observation_space=SPACE, policy=positive, token="secret")
    printed = lines(play(start, scheme + served.address, SURREAL_RLX_TOKEN="secret"))
    assert printed == ["ready", *(f"episode {number}" for number in range(1, 6)), "disconnected: disconnected"]
    assert [episode.rewards for episode in served.ended("truncated")] == [[1.0] * 9] * 5
    assert served.ended("terminated") == []
    assert [y for _, name, y, _ in served.metrics if name == "client/episode"] == [1, 2, 3, 4, 5]
    assert ("histogram", "client/lengths", [1.0, 2.0], 3) in [(a, b, list(y), x) for a, b, y, x in served.metrics[-1:]]


def test_a_wrong_token_and_a_wrong_request_are_errors_and_no_reason_to_connect_again(start: Start, serve: Any) -> None:
    served = serve(observation_space=SPACE, policy=positive, token="secret")
    printed = lines(play(start, served.address, SURREAL_RLX_TOKEN="guess"))
    assert len(printed) == 2 and "token" in printed[0] and "token" in printed[1]
    printed = lines(play(start, served.address, -1, SURREAL_RLX_TOKEN="secret"))
    assert printed[0] == "ready" and "shape" in printed[1]


def test_after_a_restart_of_the_server_no_episode_and_no_record_is_missing(start: Start, serve: Any) -> None:
    served = serve(observation_space=SPACE, policy=positive)
    process = play(start, served.address, 200)
    for count in (20, 60):
        served.wait(lambda count=count: len(served.ended("truncated")) >= count)
        served.restart()
    printed = lines(process)
    assert printed.count("ready") == 3
    reported = {y for _, name, y, _ in served.metrics if name == "client/episode"}
    assert reported == set(range(1, 201))
    # A last reply may be lost with its connection: that episode is played again.
    assert 200 <= len(served.ended("truncated")) <= 202


def test_nothing_that_was_answered_is_lost_when_the_server_is_killed(start: Start, serve_to_file: Any) -> None:
    served = serve_to_file()
    client = play(start, served.address, 60, 0, "--print", "--intervene")
    assert client.stdout is not None
    printed = [client.stdout.readline().strip() for _ in range(305)]  # within an episode
    served.kill()
    served.start()
    printed += lines(client)
    answered = [line for line in printed if line[:1].isdigit()]
    seen = served.steps()
    assert len(answered) >= 60 * 10
    assert set(answered) <= set(seen)
    # The episode that was cut is repeated from its beginning, and no other one.
    begun = [int(line.split()[0]) for line in seen if line.split()[1] == "0"]
    assert set(begun) == set(range(60))
    assert len(begun) == 61
    assert printed.count("ready") == 2
    assert {line.split()[2] for line in answered} == {"0", "agent's"}


def test_actions_leave_at_a_fixed_rate_and_a_slow_server_is_reported(start: Start, serve: Any) -> None:
    may_act = threading.Event()

    def policy(obs: Any, count: int) -> Any:
        may_act.wait(60)
        return positive(obs, count)

    served = serve(observation_space=SPACE, policy=policy)
    process = play(start, served.address, 2, 50)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("late"):
            may_act.set()
            break
    assert [line for line in lines(process) if line != "late"] == [
        "episode 1",
        "episode 2",
        "disconnected: disconnected",
    ]
    assert len(served.ended("truncated")) == 2


@pytest.mark.parametrize("is_answered", [True, False])  # whether the last action is there when the pause begins
def test_in_a_pause_no_action_leaves_and_an_episode_begins_after_it(
    start: Start, serve: Any, is_answered: bool
) -> None:
    seen, first, second = list[float](), threading.Event(), threading.Event()
    if is_answered:
        first.set()

    def policy(obs: Any, count: int) -> Any:
        seen.append(float(obs[0, 1]))
        if seen[-1] == 4.0:  # the last state before the pause, and the first after it
            (second if seen.count(4.0) == 2 else first).wait(60)
        return positive(obs, count)

    served = serve(observation_space=SPACE, policy=policy)
    process, printed = play(start, served.address, 1, 50, "--pause"), list[str]()
    assert process.stdout is not None
    for line in process.stdout:
        printed.append(line.strip())
        if "resumed" in printed and printed[-1] == "late":
            first.set()
            if printed[-5:] == ["late"] * 5 or len(printed) > 1000:
                second.set()
                break
    # The action that was chosen before the pause does not come after it.
    expected = ["pauses", "late", "sent: False", "resumes", "resumed", *["late"] * 5]
    assert printed[printed.index("pauses") :] == expected
    assert [line for line in lines(process) if line != "late"] == [
        *["action"] * 6,
        "episode 1",
        "disconnected: disconnected",
    ]
    # The step across the pause is not experience: its reward, 7, does not come.
    first, second = served.episodes
    assert [state[1] for state in second.states[:-1]] == [4, 5, 6, 7, 8]
    assert (first.rewards[:4], second.rewards) == ([1.0] * 4, [1.0] * 5)


def test_an_agent_without_a_rate_is_not_paused(start: Start, serve: Any) -> None:
    printed = lines(play(start, serve(observation_space=SPACE, policy=positive).address, 1, 0, "--pause"))
    assert printed[1:] == ["pauses", "error: only an agent with rate_hz can be paused; without it, pause your own loop"]


def test_an_executed_action_belongs_to_the_step_whose_reward_it_comes_with(start: Start, harness: Any) -> None:
    served = harness(observation_space=SPACE, pool={"interventions": True})
    assert "error" not in " ".join(lines(play(start, f"127.0.0.1:{served.port}", 1, 0, "--intervene")))
    told = [row.info.get("executed_action") for row in served.rows]
    assert told == [None, None, [0], *[None] * 7]
