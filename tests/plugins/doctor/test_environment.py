"""Planted faults of environments, each found by its name; and good ones, in which nothing is found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import surreal.envs  # noqa: F401 - registers the small environments
from surreal.base.errors import EnvError
from surreal.envs import make_env
from surreal.plugins.doctor.apart import run_apart
from surreal.plugins.doctor.environment import (
    Times,
    checker,
    examine_environment,
    leaking,
    repeating,
    translate,
    watchers_of,
)
from surreal.plugins.doctor.finding import Finding, Severity, ask, worst
from surreal.plugins.doctor.watchers import Budget, Shown, SpeedWatcher, play

#: Steps, not seconds, end the episodes of these tests.
PLAY = Budget(60.0, 400)


class Walk(gymnasium.Env[Any, Any]):
    """A random walk that ends at random: nothing is wrong with it."""

    def __init__(self) -> None:
        self.observation_space: Any = spaces.Box(-10.0, 10.0, (2,), np.float32)
        self.action_space: Any = spaces.Discrete(3)
        self.place = np.zeros(2, np.float32)
        self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=2).astype(np.float32)
        self.count = 0
        return self.obs(), self.info()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.count += 1
        self.place = np.clip(self.place + self.np_random.normal(size=2).astype(np.float32), -10, 10)
        return self.obs(), self.reward(), self.is_over(), False, self.info()

    def obs(self) -> Any:
        return self.place.copy()

    def reward(self) -> Any:
        return float(self.place[0])

    def is_over(self) -> bool:
        return bool(self.np_random.random() < 0.05)

    def info(self) -> dict[str, Any]:
        return {}


class OutsideItsSpace(Walk):
    def obs(self) -> Any:
        return self.place + 100


class SeldomOutside(Walk):
    def obs(self) -> Any:
        return self.place + 100 * (self.count == 77)

    def is_over(self) -> bool:
        return self.count == 150


class OtherShape(Walk):
    def obs(self) -> Any:
        return self.place[:1]


class FractionsForWholeNumbers(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (2,), np.uint8)


class OtherDtype(Walk):
    def obs(self) -> Any:
        return self.place.astype(np.float64)


class ChangesDtype(Walk):
    def obs(self) -> Any:
        return self.place.astype(np.float64 if self.count % 2 else np.float32)


class ReusesItsArray(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.zeros(2, np.float32)

    def obs(self) -> Any:
        self.buffer[:] = self.place
        return self.buffer


class NotFinite(Walk):
    def obs(self) -> Any:
        return np.array([self.place[0], np.nan], np.float32)


class Huge(Walk):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def obs(self) -> Any:
        return 1e5 * self.place


class Blind(Walk):
    def obs(self) -> Any:
        return np.ones(2, np.float32)


class NanReward(Walk):
    def reward(self) -> Any:
        return np.nan if self.count == 3 else 1.0


class WordsForReward(Walk):
    def reward(self) -> Any:
        return "good"


class HugeReward(Walk):
    def reward(self) -> Any:
        return 1e6


class NoReward(Walk):
    def reward(self) -> Any:
        return 0.0


class SameReturn(Walk):
    def reward(self) -> Any:
        return 1.0

    def is_over(self) -> bool:
        return self.count == 20


class MaskOfNothing(Walk):
    def info(self) -> dict[str, Any]:
        return {"action_mask": np.zeros(3, np.int8)}


class ShortMask(Walk):
    def info(self) -> dict[str, Any]:
        return {"action_mask": np.ones(2, np.int8)}


class MaskNowAndThen(Walk):
    def info(self) -> dict[str, Any]:
        return {"action_mask": np.ones(3, np.int8)} if self.count % 2 else {}


class TimeLimitAsTerminal(Walk):
    def is_over(self) -> bool:
        return self.count == 50


class BothFlags(Walk):
    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, _, info = super().step(action)
        return obs, reward, terminated, terminated, info


class NeverEnds(Walk):
    def is_over(self) -> bool:
        return False


class Raises(Walk):
    def reward(self) -> Any:
        return 1 / (self.count - 7)


class FourValues(Walk):
    def step(self, action: Any) -> Any:
        return super().step(action)[:4]


def found(findings: Any) -> set[str]:
    return {finding.fault for finding in findings if finding.severity is not Severity.OK}


@pytest.mark.parametrize(
    ("env", "fault"),
    [
        (OutsideItsSpace, "obs-outside-space"),
        (SeldomOutside, "obs-outside-space-seldom"),
        (OtherShape, "obs-does-not-fit"),
        (FractionsForWholeNumbers, "obs-does-not-fit"),
        (OtherDtype, "obs-of-other-dtype"),
        (ChangesDtype, "obs-changes-dtype"),
        (ReusesItsArray, "obs-reused"),
        (NotFinite, "obs-not-finite"),
        (Huge, "obs-large"),
        (Blind, "obs-constant"),
        (NanReward, "reward-not-finite"),
        (WordsForReward, "reward-not-finite"),
        (HugeReward, "reward-large"),
        (NoReward, "reward-always-zero"),
        (SameReturn, "return-always-same"),
        (MaskOfNothing, "mask-without-action"),
        (ShortMask, "mask-of-other-shape"),
        (MaskNowAndThen, "mask-missing"),
        (TimeLimitAsTerminal, "time-limit-terminated"),
        (BothFlags, "terminated-and-truncated"),
        (Raises, "env-raises"),
        (FourValues, "env-raises"),
    ],
)
def test_the_fault_of_an_environment_is_found_and_no_other(env: type[Walk], fault: str) -> None:
    made = env()
    assert found(play(made, watchers_of(made), PLAY)) == {fault}


def test_findings_have_the_value_and_the_place() -> None:
    outside, raising = OutsideItsSpace(), Raises()
    text = next(iter(play(outside, watchers_of(outside), PLAY))).text
    assert "421 of 421" in text and "bounds -10 to 10" in text and " at [0]" in text
    *_, last = play(raising, watchers_of(raising), PLAY)
    assert "ZeroDivisionError" in last.text and "test_environment.py line" in last.text and "step, after" in last.text


def test_an_environment_without_an_end_is_noticed_after_a_while() -> None:
    env = NeverEnds()
    assert found(play(env, watchers_of(env), Budget(60.0, 1200))) == {"episode-without-end"}


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "surreal/CartPoleDict-v0", "surreal/Bandit-v0"])
def test_nothing_is_found_in_good_environments(env_id: str) -> None:
    env = make_env(env_id)
    assert found(play(env, watchers_of(env), Budget(60.0, 1000))) == set()
    assert found(repeating(env)) == set()
    assert found(checker(env)) == set()


def test_masks_of_several_discrete_actions_are_obeyed_and_judged() -> None:
    class Masked(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = spaces.MultiDiscrete([2, 3])

        def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            assert action.tolist() == [1, 0]
            return super().step(action)

        def info(self) -> dict[str, Any]:
            return {"action_mask": (np.array([0, 1]), np.array([1, 0, 0]))}

    env = Masked()
    assert found(play(env, watchers_of(env), PLAY)) == set()


class Unseeded(Walk):
    """Draws from numbers of its own, which no seed reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng()

    def obs(self) -> Any:
        return self.rng.normal(size=2).astype(np.float32).clip(-10, 10)


def test_an_environment_that_seeds_do_not_repeat_is_found() -> None:
    assert found(repeating(Unseeded())) == {"env-not-seedable"}
    assert found(repeating(Walk())) == set()


class Steady:
    """A clock that gives each episode's part of the time the same number of steps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 0.001
        return self.now_s


def test_memory_that_grows_with_the_episodes_is_a_leak() -> None:
    class Hoards(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[int] = []

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            self.kept.append(1 << 20)
            return super().reset(seed=seed)

    # What the allocator of a process that has run many tests shows is another matter.
    env = Hoards()
    measure = lambda: (100 << 20) + sum(env.kept)  # noqa: E731
    assert found(leaking(env, 2.0, measure=measure, clock=Steady())) == {"env-leaks"}


def test_memory_that_only_jumps_once_is_no_leak() -> None:
    sizes = iter([100 << 20, 100 << 20, 100 << 20, 100 << 20, 100 << 20, 160 << 20, 160 << 20, 160 << 20, 160 << 20])
    assert found(leaking(Walk(), 0.8, measure=lambda: next(sizes), clock=Steady())) == set()


def speed(reset_s: float, step_s: float, *, length: int = 10) -> set[str]:
    watcher = SpeedWatcher()
    for _ in range(3):
        watcher.see(Shown(None, None, False, False, {}, reset_s))
        for number in range(length):
            watcher.see(Shown(None, 1.0, number == length - 1, False, {}, step_s))
    return found(watcher.findings())


def test_slow_resets_and_slow_steps_are_found() -> None:
    assert speed(0.5, 0.001) == {"reset-slow"}
    assert speed(0.0, 0.05) == {"env-slow"}
    assert speed(0.004, 0.0001, length=1) == set()  # its share is large, but nobody would notice


def test_what_gymnasiums_checker_says_is_translated() -> None:
    class OldReset(Walk):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(seed=seed)[0]

    class Forgetful(Walk):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return super().reset()

    class WholeNumbersForFlags(Walk):
        def step(self, action: Any) -> Any:
            obs, reward, terminated, _, info = super().step(action)
            return obs, reward, int(terminated), False, info

    (finding,) = checker(WholeNumbersForFlags())
    assert (finding.fault, finding.text) == (
        "gymnasium-checker",
        "gymnasium's checker: terminated or truncated is not a boolean",
    )
    (finding,) = checker(OldReset())
    assert (finding.fault, finding.text) == (
        "gymnasium-checker-fails",
        "gymnasium's checker: reset does not return (obs, info)",
    )
    (finding,) = checker(Forgetful())
    assert finding.fault == "gymnasium-checker-fails" and "super().reset(seed=seed)" in finding.remedy
    assert translate("WARN: A Box observation space minimum value is -infinity. This is probably too low.") is None
    assert translate("something new") == ("gymnasium's checker: something new", "")


def test_one_that_cannot_be_made_is_said_once_and_nothing_more_is_asked() -> None:
    def fail() -> Any:
        raise EnvError("environment 'X' does not exist; did you mean Y?")

    findings: list[Finding] = [each for check in examine_environment(fail, Times(1.0, 0.0)) for each in ask(check)]
    assert [finding.fault for finding in findings] == ["env-not-made"]
    assert worst(findings) is Severity.ERROR


HANGING = """
import sys, time
import gymnasium
from gymnasium import spaces
from surreal.plugins.doctor.environment import Times, examine_environment
from surreal.plugins.doctor.apart import report

class Hangs(gymnasium.Env):
    observation_space, action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        self.wait_for_the_simulator()

    def wait_for_the_simulator(self):
        while True:
            time.sleep(0.01)

report(int(sys.argv[1]), examine_environment(Hangs, Times(0.1, 0.0, patience_s=0.4)))
"""


def test_an_environment_that_hangs_is_found_with_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hanging.py").write_text(HANGING)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.getcwd()}")
    findings = list(run_apart("hanging", []))
    assert [finding.fault for finding in findings] == ["check-hangs", "check-not-done"]
    assert "playing episodes did not end" in findings[0].text
    assert "wait_for_the_simulator (hanging.py line" in findings[0].text
