"""Environments that raise, or show impossible numbers: their episode is lost, the others go on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from surreal.base.errors import EnvError
from surreal.base.types import StepBatch, StepKind
from surreal.envs import EnvPool, LocalEnvPool, SubprocEnvPool
from surreal.envs.pools.base import FaultCounter


class Faulty(gymnasium.Env[np.ndarray, int]):
    """Episodes of five steps; the third step of every second episode is at fault. The observation counts episodes."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, fault: str, every: int = 2) -> None:
        self.fault, self.every, self.episode, self.step_number = fault, every, -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self.episode, self.step_number = self.episode + 1, 0
        return self._look(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.step_number += 1
        obs, reward = self._look(), 1.0
        if self.step_number == 3 and self.episode % self.every == self.every - 1:
            if self.fault == "raise":
                raise RuntimeError("the simulator\nis gone")
            if self.fault == "reward":
                reward = 1e300
            elif self.fault.startswith("huge"):
                reward, obs = (10**400, obs) if self.fault == "huge reward" else (1.0, np.array([10**400, 0]))
            else:
                obs[1] = float(self.fault)
        return obs, reward, self.step_number == 5, False, {}

    def _look(self) -> np.ndarray:
        return np.array([self.episode, self.step_number], np.float32)


Pool = Callable[..., EnvPool]


def local(fault: str, **options: Any) -> EnvPool:
    return LocalEnvPool([partial(Faulty, fault), partial(Faulty, fault, 10**9)], **options)


def in_workers(fault: str, **options: Any) -> EnvPool:
    makers = [partial(Faulty, fault), partial(Faulty, fault, 10**9)]
    return SubprocEnvPool(makers, num_workers=1, **options)


def drive(pool: EnvPool, count: int) -> list[StepBatch]:
    """Copies of so many batches that have rows."""
    batches: list[StepBatch] = []
    while len(batches) < count:
        batch = pool.recv(60.0)
        if len(batch.kind):
            batches.append(batch._replace(obs=batch.obs.copy(), reward=batch.reward.copy()))
            ids = batch.env_ids[batch.num_last :]
            pool.send(np.zeros(len(ids), np.int64), ids)
    return batches


@pytest.mark.parametrize("make", [local, in_workers])
@pytest.mark.parametrize("fault", ["nan", "inf", "-inf", "3e38", "-3e38", "reward", "raise", "huge reward", "huge obs"])
def test_an_episode_with_a_fault_is_cut_and_nothing_of_the_fault_is_seen(make: Pool, fault: str) -> None:
    with make(fault, on_error="restart" if fault in ("raise", "huge reward", "huge obs") else "end") as pool:
        batches = drive(pool, 24)
        assert all(np.abs(batch.obs).max() < 1e6 and np.abs(batch.reward).max() < 10 for batch in batches)
        cut = [batch for batch in batches if len(batch.closed_ids)]
        assert len(cut) >= 2
        for batch in cut:
            assert batch.closed_ids.tolist() == [0]
            rows = [(int(kind), int(row)) for kind, row in zip(batch.kind, batch.env_ids, strict=True)]
            # The faulty one begins anew, without the end of an episode; the other one goes on.
            assert (int(StepKind.FIRST), 0) in rows
            assert (int(StepKind.LAST), 0) not in rows
            assert batch.reward[rows.index((int(StepKind.FIRST), 0))] == 0.0
        assert pool.metrics()["env/lost_episodes_total"] == len(cut)
        lengths = [
            int(batch.info["episode_length"][row]) for batch in batches for row in range(batch.num_last)
        ]  # fmt: skip
        assert lengths
        assert set(lengths) == {5}


class Stumbling(Faulty):
    """Its third `reset` raises."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        if self.episode == 1:
            raise RuntimeError("cannot begin")
        return super().reset(seed=seed, options=options)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_environment_whose_reset_raises_is_made_again(num_workers: int) -> None:
    makers = [partial(Stumbling, "0"), partial(Faulty, "0")]
    makes = partial(SubprocEnvPool, num_workers=num_workers) if num_workers else LocalEnvPool
    with makes(makers, on_error="restart") as pool:
        batches = drive(pool, 24)
        assert not any(len(batch.closed_ids) for batch in batches), "no episode is cut: it ended before"
        lasts = [row for batch in batches for row in batch.env_ids[: batch.num_last].tolist()]
        assert lasts.count(0) == lasts.count(1) == 4
        firsts = [batch.obs[batch.env_ids == 0][-1, 0] for batch in batches if (batch.kind == StepKind.FIRST).any()]
        assert firsts == [0, 1, 0, 1, 0], "after two episodes it is a new environment"


def test_an_environment_that_fails_to_begin_at_first_is_made_again_a_few_times() -> None:
    made: list[int] = []

    def make(failures: int) -> Faulty:
        made.append(1)
        env = Faulty("0")
        if len(made) <= failures:
            env.reset = lambda **_: 1 / 0  # type: ignore[method-assign,assignment]
        return env

    with LocalEnvPool([partial(make, 3)], on_error="restart") as pool:
        assert drive(pool, 1)[0].kind.tolist() == [StepKind.FIRST]
    assert len(made) == 4
    with (
        LocalEnvPool([partial(make, 1000)], on_error="restart") as pool,
        pytest.raises(EnvError, match=r"Faulty \(environment 0\) raised ZeroDivisionError.*11 episodes were lost"),
    ):
        drive(pool, 1)
    with LocalEnvPool([partial(make, 1000)]) as pool, pytest.raises(ZeroDivisionError):
        drive(pool, 1)


def test_an_exception_ends_the_run_unless_it_is_forgiven() -> None:
    with local("raise") as pool, pytest.raises(RuntimeError, match="the simulator"):
        drive(pool, 24)


@pytest.mark.parametrize("fault", ["huge reward", "huge obs"])
@pytest.mark.parametrize("make", [local, in_workers])
def test_what_is_no_number_is_an_error_that_names_the_environment(make: Pool, fault: str) -> None:
    with (
        make(fault) as pool,
        pytest.raises(EnvError, match=r"Faulty \(environment 0\) gives a value that is not a number"),
    ):
        drive(pool, 24)


@pytest.mark.parametrize("fault", ["1e-45", "5e-324", "-1e-40"])
def test_subnormal_numbers_are_numbers(fault: str) -> None:
    with local(fault) as pool:
        drive(pool, 24)
        assert pool.metrics()["env/lost_episodes_total"] == 0


@pytest.mark.parametrize("fault", ["nan", "raise"])
def test_an_environment_that_never_comes_to_an_end_ends_the_run_with_the_reason(fault: str) -> None:
    pool = LocalEnvPool([partial(Faulty, fault, 1)], on_error="restart")
    reason = "the simulator is gone" if fault == "raise" else "observation is nan"
    with pool, pytest.raises(EnvError, match=rf"Faulty \(environment 0\).*{reason}.*11 episodes were lost"):
        drive(pool, 100)


def test_a_first_observation_that_is_impossible_is_refused() -> None:
    class Broken(Faulty):
        def _look(self) -> np.ndarray:
            return np.full(2, np.nan, np.float32)

    with LocalEnvPool([partial(Broken, "nan")]) as pool, pytest.raises(EnvError, match="begins with an impossible"):
        pool.recv()


@pytest.mark.parametrize(
    ("fault", "shown"),
    [("nan", "observation is nan"), ("-3e38", "observation is -3e.38"), ("reward", "reward is 1e.300")],
)
def test_vector_environments_name_what_they_show(fault: str, shown: str) -> None:
    vector = gymnasium.vector.SyncVectorEnv([partial(Faulty, fault)] * 2)
    with LocalEnvPool(vector) as pool, pytest.raises(EnvError, match=shown):
        drive(pool, 24)


def test_mercy_refills_with_every_whole_episode_and_speaks_rarely(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    faults = FaultCounter(lambda: now_s)
    for _ in range(10):
        for _ in range(10):
            faults.add("it broke")
        faults.clear()
    assert caplog.text.count("it broke") == 1
    now_s = 60.0
    faults.add("it broke")
    assert "(100 faults since the last message)" in caplog.text
    for _ in range(9):
        faults.add("it broke")
    with pytest.raises(EnvError, match="11 episodes were lost"):
        faults.add("it broke")
