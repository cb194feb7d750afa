"""`surreal top` with a real Redis, and with a terminal of its own."""

from __future__ import annotations

import json
import math
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyte
import pytest

from surreal.cli.program import main
from surreal.config import load_config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.plugins.runs.top import Follower
from surreal.run.process import registry
from surreal.run.process.registry import Registrant

CONFIG = load_config("cartpole-dqn", ["run.max_time_s=36000"])


@pytest.fixture
def client(redis_server: Any, run_id: str) -> Iterator[RedisClient]:
    with RedisClient(redis_server.address, run=run_id) as client:
        registry.register(client, CONFIG, Registrant("launcher", leads=True))
        yield client
        client.delete_run()


def beat(client: RedisClient, role: str, name: str, life: str = "a", **changes: Any) -> None:
    """Let a process say that it is alive."""
    now_s = client.server_time_s()
    written = replace(Heartbeat(f"{name}-{life}", role, name, 1, "host", now_s - 18_000.0, now_s), **changes)
    client.redis.hset(client.run_keys.processes, written.id, written.encode())  # type: ignore[arg-type]


def score(client: RedisClient, number: int, mean_return: float | None, *, age_s: float = 0.0) -> None:
    line = {"kind": "round", "round": number, "time": client.server_time_s() - age_s, "mean_return": mean_return}
    client.redis.xadd(client.run_keys.scores, {"round": json.dumps(line)})


def test_rounds_that_were_played_before_are_known_at_once(client: RedisClient) -> None:
    score(client, 0, 9.0, age_s=60.0)
    client.redis.xadd(client.run_keys.scores, {"lines": "of an older process"})
    client.redis.xadd(client.run_keys.scores, {"round": '{"round": "x", "time": NaN, "mean_return": 1}'})
    score(client, 1, None, age_s=40.0)
    score(client, 2, 30.0, age_s=20.0)
    follower = Follower(client)
    trend = follower.trend(1000.0)
    first, second, third = trend.eval_returns.points
    assert (first, math.isnan(second), third) == (9.0, True, 30.0)
    assert [round(each.time_s, -1) for each in trend.rounds] == [940.0, 960.0, 980.0]
    metrics = {"eval/rounds_total": 3.0, "eval/episode_return": 30.0}
    beat(client, "eval", "eval", metrics=metrics)
    assert follower.look()
    trend.add(follower.view, 1001.0)
    assert len(trend.eval_returns.points) == 3  # which the heartbeat says as well
    beat(client, "eval", "eval", metrics=metrics | {"eval/rounds_total": 4.0})
    assert follower.look()
    trend.add(follower.view, 1002.0)
    assert len(trend.eval_returns.points) == 4


def test_a_look_is_three_commands_in_one_round_trip(client: RedisClient) -> None:
    beat(client, "agent", "agent-0", metrics={"agent/env_steps_per_s": 10.0}, global_step=77)
    follower = Follower(client)
    assert follower.look()  # connected by now
    before: Any = client.redis.info("commandstats")
    for _ in range(5):
        assert follower.look()
    after: Any = client.redis.info("commandstats")
    calls = {name: value["calls"] - before.get(name, {"calls": 0})["calls"] for name, value in after.items()}
    assert {name: count for name, count in calls.items() if count and name != "cmdstat_info"} == {
        "cmdstat_time": 5, "cmdstat_hgetall": 5, "cmdstat_get": 5,
    }  # fmt: skip
    assert (follower.view.env_steps, follower.view.steps_per_s) == (77, 10.0)


def test_a_run_is_over_when_it_was_told_to_end_and_nobody_is_left(client: RedisClient) -> None:
    follower = Follower(client)
    assert follower.look() and not follower.is_over  # nobody has come yet
    beat(client, "learner", "learner", global_step=500)
    assert follower.look() and not follower.is_over
    assert follower.ask_to_stop()
    assert follower.look() and not follower.is_over
    client.redis.delete(client.run_keys.processes)
    assert follower.look() and follower.is_over
    assert (follower.stop_reason, follower.view.env_steps) == ("surreal top", 500)
    client.redis.delete(client.run_keys.stop)  # as a launcher does at the end
    assert follower.look() and follower.is_over and follower.stop_reason == "surreal top"


def test_a_run_that_ends_in_order_is_over_and_one_that_was_killed_may_come_back(client: RedisClient) -> None:
    follower = Follower(client)
    beat(client, "learner", "learner")
    assert follower.look() and not follower.is_over
    beat(client, "learner", "learner", time=client.server_time_s() - 60.0)
    assert follower.look() and not follower.is_over
    client.redis.delete(client.run_keys.processes)
    assert follower.look() and follower.is_over


def test_when_its_redis_goes_a_run_is_over_only_if_it_was_ending(start_redis: Callable[..., Any], run_id: str) -> None:
    server = start_redis()
    with RedisClient(server.address, run=run_id) as client:
        beat(client, "learner", "learner", global_step=5)
        follower, ending = Follower(client), Follower(client)
        assert follower.look()
        registry.request_stop(client, "its time")
        assert ending.look() and not ending.is_over
        server.kill()
        assert not follower.look() and not follower.is_over
        assert not ending.look() and ending.is_over
        assert not follower.ask_to_stop()
        assert ending.view.env_steps == 5


def test_once_prints_it_as_plain_text(
    client: RedisClient, redis_server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    beat(client, "launcher", "launcher")
    beat(client, "learner", "learner", metrics={"learner/updates_total": 7.0}, global_step=6000)
    beat(client, "agent", "agent-0", "dead", time=client.server_time_s() - 60.0)
    beat(client, "agent", "agent-0", waits_for=("waiting for credit",))
    score(client, 0, 9.0)
    assert main(["top", client.run, "--redis", redis_server.address, "--once"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [client.run, "5", "h", "0", "min"]
    assert "5 h 0 min of 10 h 0 min" in lines[1]  # nobody knows when 60,000 steps are done
    assert any(line.split() == ["agent-0", "-", "-", "1", "waiting"] for line in lines)
    assert any(line.startswith("eval return    ▅") for line in lines)
    assert all(len(line) <= 80 and "\x1b" not in line for line in lines)
    assert main(["top", "nobody", "--redis", redis_server.address, "--once"]) == 2
    assert "knows no run 'nobody'" in capsys.readouterr().err


class Screen:
    """`surreal top` in a terminal of its own, and what a person sees of it."""

    def __init__(self, address: str, run: str) -> None:
        self.terminal, side = pty.openpty()
        self.before = termios.tcgetattr(self.terminal)
        termios.tcsetwinsize(side, (24, 80))
        self.screen = pyte.Screen(80, 24)
        self._stream = pyte.ByteStream(self.screen)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "surreal", "top", run, "--redis", address],
            stdin=side, stdout=side, stderr=side, start_new_session=True, env={**os.environ, "TERM": "xterm"},
        )  # fmt: skip
        os.close(side)
        os.set_blocking(self.terminal, False)

    @property
    def text(self) -> str:
        try:
            while data := os.read(self.terminal, 65536):
                self._stream.feed(data)
        except OSError:  # nothing more for now, or for ever
            pass
        return "\n".join(line.rstrip() for line in self.screen.display).strip()

    def press(self, key: str) -> None:
        os.write(self.terminal, key.encode())

    def wait_for(self, words: str, timeout_s: float = 60.0) -> str:
        deadline = time.monotonic() + timeout_s
        while words not in (text := self.text):
            assert time.monotonic() < deadline, f"{words!r} is not in:\n{text}"
            time.sleep(0.05)
        return text

    def end(self) -> int:
        code = self.process.wait(60.0)
        assert self.text
        assert not self.screen.cursor.hidden
        assert termios.tcgetattr(self.terminal) == self.before
        return code


@pytest.fixture
def top(client: RedisClient, redis_server: Any) -> Iterator[Screen]:
    beat(client, "learner", "learner", metrics={"learner/updates_total": 7.0}, global_step=6000)
    screen = Screen(redis_server.address, client.run)
    yield screen
    screen.process.kill()
    screen.process.wait()
    with suppress(OSError):
        os.close(screen.terminal)


def test_keys_ask_the_run_to_stop_after_a_second_thought_and_leave(client: RedisClient, top: Screen) -> None:
    top.wait_for("q leaves this view, s asks the run to stop")
    assert "6,000 (0/s) env steps" in top.text
    top.press("s")
    top.wait_for("ask the run to stop? y: yes, any other key: no")
    top.press("n")
    top.wait_for("s asks the run to stop")
    assert registry.stop_reason(client) == ""
    top.press("sy")
    top.wait_for("the run was asked to stop; q leaves this view")
    assert registry.stop_reason(client) == "surreal top"
    beat(client, "learner", "learner", metrics={"learner/updates_total": 8.0}, global_step=6500)
    top.wait_for("ending: surreal top")
    top.press("q")
    text = top.wait_for(f"run {client.run} continues")
    assert "6,500 (0/s) env steps   8 (0/s) updates" in text  # the last state stays
    assert "q leaves" not in text
    assert top.end() == 0


def test_it_ends_with_the_run(client: RedisClient, top: Screen) -> None:
    top.wait_for("q leaves this view")
    registry.request_stop(client, "its time")
    client.redis.delete(client.run_keys.processes)
    top.wait_for(f"run {client.run} has ended: its time")
    assert top.end() == 0


def test_ctrl_c_leaves_the_terminal_as_it_was(top: Screen) -> None:
    top.wait_for("q leaves this view")
    top.process.send_signal(signal.SIGINT)
    assert top.end() == 130
    assert "6,000 (0/s) env steps" in top.text


def test_it_ends_with_its_terminal(top: Screen) -> None:
    top.wait_for("q leaves this view")
    os.close(top.terminal)
    assert top.process.wait(60.0) == 129
