"""What a local pool promises around its rows: sends, seeds, flags, and environments that break their promises."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import toy_envs
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from surreal.base.errors import EnvError
from surreal.envs import LocalEnvPool, WrapperSpec, make_env
from surreal.envs.wrappers.named import apply_wrappers
from surreal.envs.wrappers.steps import RawEpisodeMonitor


def make_pool(num_envs: int = 3, **kwargs: Any) -> LocalEnvPool:
    return LocalEnvPool([lambda: toy_envs.ToyEnv(**kwargs)] * num_envs, seed=0)


def test_recv_is_empty_until_all_rows_have_their_action() -> None:
    pool = make_pool()
    assert pool.recv().env_ids.tolist() == [0, 1, 2]
    assert len(pool.recv().env_ids) == 0
    pool.send(np.array([1, 1]), np.array([2, 0]))
    assert pool.recv(0.0).obs.shape == (0, 3)
    pool.send(np.array([2]), np.array([1]))
    assert len(pool.recv().env_ids) >= 3


def test_actions_reach_the_environment_they_are_meant_for() -> None:
    envs = [toy_envs.ToyEnv() for _ in range(3)]
    pool = LocalEnvPool([lambda index=index: envs[index] for index in range(3)], seed=0)
    pool.recv()
    pool.send(np.array([2, 0, 1]), np.array([2, 0, 1]))
    pool.recv()
    assert [env.actions for env in envs] == [[0], [1], [2]]


@pytest.mark.parametrize("ids", [[0, 0, 1], [0, 1, 3], [-1, 0, 1]])
def test_a_send_for_environments_that_do_not_wait_is_refused(ids: list[int]) -> None:
    pool = make_pool()
    pool.recv()
    with pytest.raises(ValueError, match="wait for one"):
        pool.send(np.zeros(3, int), np.array(ids))


def test_a_second_send_and_a_wrong_shape_are_refused() -> None:
    pool = make_pool(action="box")
    pool.recv()
    with pytest.raises(ValueError, match=r"must have shape \(3, 2\), got \(3,\)"):
        pool.send(np.zeros(3), np.arange(3))
    pool.send(np.zeros((3, 2)), np.arange(3))
    with pytest.raises(ValueError, match="wait for one"):
        pool.send(np.zeros((3, 2)), np.arange(3))


def test_a_batch_without_live_rows_needs_no_send() -> None:
    envs = SyncVectorEnv([lambda: toy_envs.ToyEnv(max_length=1)] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
    pool = LocalEnvPool(envs, seed=0)
    batch = pool.recv()
    pool.send(np.zeros(2, int), batch.env_ids)
    batch = pool.recv()
    assert batch.num_last == len(batch.env_ids) == 2
    assert pool.recv().num_last == 0


@pytest.mark.parametrize("is_vector", [False, True])
def test_flags_stand_in_every_row(is_vector: bool) -> None:
    envs: Any = [toy_envs.ToyEnv] * 2
    pool = LocalEnvPool(SyncVectorEnv(envs) if is_vector else envs, seed=0, explore=False, record=False)
    for _ in range(20):
        batch = pool.recv()
        assert not batch.explore.any()
        assert not batch.record.any()
        assert len(batch.closed_ids) == 0
        pool.send(np.zeros(len(batch.env_ids) - batch.num_last, int), batch.env_ids[batch.num_last :])


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (np.zeros(4, np.float32), r"shape \(4,\), but its space says \(3,\)"),
        (np.float32(1), r"shape \(\), but its space says \(3,\)"),
        ({"a": {"y": np.zeros(2, np.int8), "z": 1}, "b": np.zeros((1, 3))}, r"'b' of shape \(1, 3\)"),
    ],
)
@pytest.mark.parametrize("at_reset", [True, False])
def test_a_wrong_shape_is_named(found: Any, message: str, at_reset: bool) -> None:
    pool = LocalEnvPool([lambda: toy_envs.Unfit(found, at_reset=at_reset)], seed=1)
    with pytest.raises(EnvError, match=f"Unfit gives .*{message}"):
        for _ in range(2):
            pool.recv()
            pool.send(np.zeros(1, int), np.zeros(1, int))


def test_missing_keys_and_lossy_dtypes_are_refused_at_the_start() -> None:
    with pytest.raises(EnvError, match="must be a dict with keys"):
        LocalEnvPool([lambda: toy_envs.Unfit({"a": {}}, at_reset=True)]).recv()
    found = {"a": {"y": np.array([0.5, 1.0]), "z": 1}, "b": np.zeros(3)}
    with pytest.raises(EnvError, match=r"'a\.y' as float64, but its space says int8"):
        LocalEnvPool([lambda: toy_envs.Unfit(found, at_reset=True)]).recv()


def test_a_mask_of_the_wrong_size_is_refused() -> None:
    pool = LocalEnvPool([lambda: toy_envs.ToyEnv(action="multi", masks=True)])
    with pytest.raises(EnvError, match="3 entries, but the action space has 5 choices"):
        pool.recv()


def test_environments_of_different_kinds_are_refused_and_closed() -> None:
    closed = []

    class Closing(toy_envs.ToyEnv):
        def close(self) -> None:
            closed.append(self)

    with pytest.raises(EnvError, match="environment 1 of the pool has observations"):
        LocalEnvPool([Closing, lambda: Closing("dict")])
    assert len(closed) == 2


def test_a_vector_environment_must_name_its_autoreset_mode() -> None:
    envs = SyncVectorEnv([toy_envs.ToyEnv])
    envs.metadata = {}
    with pytest.raises(EnvError, match="names no autoreset mode"):
        LocalEnvPool(envs)


def test_spaces_without_arrays_are_refused() -> None:
    class Talking(toy_envs.ToyEnv):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Text(5)

    with pytest.raises(EnvError, match="not supported"):
        LocalEnvPool([Talking])
    with pytest.raises(ValueError, match="at least one"):
        LocalEnvPool([])


def test_closing_twice_is_fine() -> None:
    pool = make_pool()
    pool.recv()
    pool.close()
    pool.close()


class Fixed(gymnasium.Env[Any, Any]):
    """Ten rewards of 3, then the end."""

    observation_space = spaces.Discrete(100)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        self.steps = 0
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.steps, 3.0, self.steps == 10, False, {}


class Lives(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Ends every four steps, while the environment goes on."""

    def reset(self, **kwargs: Any) -> Any:
        steps = getattr(self.env.unwrapped, "steps", 10)
        return self.env.reset(**kwargs) if steps == 10 else (steps, {})

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated or obs % 4 == 0, truncated, info


def episodes_of(env_fn: Any, steps: int) -> list[tuple[float, int]]:
    pool = LocalEnvPool([env_fn])
    found = []
    for _ in range(steps + 1):
        batch = pool.recv()
        if batch.num_last:
            found.append((float(batch.info["episode_return"][0]), int(batch.info["episode_length"][0])))
        pool.send(np.zeros(1, int), np.zeros(1, int))
    return found


def wrapped(*specs: WrapperSpec) -> Any:
    return lambda: apply_wrappers(RawEpisodeMonitor(Fixed()), specs, training=True)


def test_returns_are_those_below_the_wrappers_of_training() -> None:
    assert episodes_of(wrapped(WrapperSpec("reward_clip")), 20) == [(30.0, 10), (30.0, 10)]
    assert episodes_of(Fixed, 10) == [(30.0, 10)]


def test_an_episode_cut_by_a_wrapper_counts_as_it_was() -> None:
    cut = wrapped(WrapperSpec("time_limit", {"max_episode_steps": 4}))
    assert episodes_of(cut, 8) == [(12.0, 4), (12.0, 4)]


def test_an_end_that_is_none_below_has_no_return() -> None:
    found = episodes_of(lambda: Lives(RawEpisodeMonitor(Fixed())), 10)
    assert [length for _, length in found] == [0, 0, 10]
    assert np.isnan([found[0][0], found[1][0]]).all()
    assert found[2][0] == 30.0


def test_make_env_counts_raw_rewards() -> None:
    pool = LocalEnvPool([lambda: make_env("CartPole-v1", wrappers=[WrapperSpec("reward_scale", {"scale": 0.5})])])
    batch = pool.recv()
    while not batch.num_last:
        pool.send(np.zeros(1, int), np.zeros(1, int))
        batch = pool.recv()
    assert batch.reward[0] == 0.5
    assert batch.info["episode_return"][0] == batch.info["episode_length"][0] > 5
