"""When a learner has done what the run asked for."""

from __future__ import annotations

from surreal.config import load_config
from surreal.run.session.intake import LearnerLimits
from tests.unit.run.session.fakes import Clock


def limits(clock: Clock, *overrides: str, is_timed: bool = True) -> LearnerLimits:
    return LearnerLimits(load_config("cartpole-dqn", list(overrides)), is_timed=is_timed, clock=clock)


def test_each_limit_is_reached_at_its_value_and_says_which_it_is() -> None:
    clock = Clock()
    mine = limits(clock, "learner.max_updates=10", "run.max_env_steps=5000", "run.max_time_s=60")
    assert (mine.updates_reason(9), mine.run_reason(4999)) == ("", "")
    assert mine.updates_reason(10) == "max_updates: 10 updates were done"
    assert mine.run_reason(5000) == "max_env_steps: 5000 env steps were done"
    clock.now_s += 60
    assert mine.run_reason(4999) == "max_time_s: 60 s have passed"


def test_under_a_launcher_time_is_the_launcher_s() -> None:
    clock = Clock()
    mine = limits(clock, "run.max_time_s=60", is_timed=False)
    clock.now_s += 10**6
    assert mine.run_reason(0) == ""


def test_without_limits_nothing_ends_a_run() -> None:
    mine = limits(Clock(), "run.max_env_steps=null")
    assert (mine.updates_reason(10**9), mine.run_reason(10**9)) == ("", "")


def test_the_time_left_follows_the_rates_so_far_and_is_none_before_there_are_any() -> None:
    clock = Clock()
    mine = limits(clock, "run.max_env_steps=5000", "run.stop_at_return=null")
    assert mine.seconds_left(0, 1000) == 0.0
    clock.now_s += 10
    assert mine.seconds_left(7, 1000) == 0.0
    assert mine.seconds_left(7, 2000) == 30.0
    endless = limits(clock, "run.max_env_steps=null", "run.stop_at_return=null")
    assert endless.seconds_left(0, 0) == 86_400.0
    solving = limits(clock, "run.max_env_steps=null", "run.stop_at_return=400")
    clock.now_s += 20
    assert solving.seconds_left(0, 0) == 20.0
