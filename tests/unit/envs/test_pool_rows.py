"""Every pool against a naive loop over single environments: the same rows, in all autoreset modes."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
import toy_envs
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from surreal.base.types import StepKind
from surreal.envs import LocalEnvPool, SubprocEnvPool
from surreal.envs.actions import ActionAdapter
from surreal.envs.pools.base import env_seeds

NUM_ENVS = 5
ROWS = 25


def expected_rows(seed: Any, num_envs: int = NUM_ENVS, **kwargs: Any) -> dict[int, list[tuple[Any, ...]]]:
    rows = {}
    for env_id, env_seed in enumerate(env_seeds(seed, num_envs)):
        env = toy_envs.ToyEnv(**kwargs)
        adapter = ActionAdapter(env.action_space)
        one = functools.partial(lambda adapter, action: adapter.rows(np.asarray(action)[None])[0], adapter)
        rows[env_id] = toy_envs.naive_rows(env, env_seed, adapter.space, one, env_id, ROWS)
    return rows


def makers(num_envs: int = NUM_ENVS, **kwargs: Any) -> list[Any]:
    return [functools.partial(toy_envs.ToyEnv, **kwargs)] * num_envs


def assert_same(got: dict[int, list[tuple[Any, ...]]], expected: dict[int, list[tuple[Any, ...]]]) -> None:
    assert got.keys() == expected.keys()
    for env_id, rows in expected.items():
        for index, (row, wanted) in enumerate(zip(got[env_id], rows, strict=True)):
            assert row == wanted, f"row {index} of environment {env_id}"


@pytest.mark.parametrize("obs", toy_envs.OBSERVATIONS)
@pytest.mark.parametrize("seed", [0, [3, 7]])
def test_single_environments_give_the_rows_of_a_naive_loop(obs: str, seed: Any) -> None:
    with LocalEnvPool(makers(obs=obs), seed=seed) as pool:
        assert_same(toy_envs.pool_rows(pool, ROWS), expected_rows(seed, obs=obs))


@pytest.mark.parametrize("action", toy_envs.ACTIONS)
def test_every_action_space_reaches_the_environment(action: str) -> None:
    with LocalEnvPool(makers(action=action), seed=1) as pool:
        assert_same(toy_envs.pool_rows(pool, ROWS), expected_rows(1, action=action))


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("obs", toy_envs.OBSERVATIONS)
@pytest.mark.parametrize("copy", [True, False])
def test_vector_environments_give_the_rows_of_a_naive_loop(mode: AutoresetMode, obs: str, copy: bool) -> None:
    envs = SyncVectorEnv(makers(obs=obs), copy=copy, autoreset_mode=mode)
    with LocalEnvPool(envs, seed=2) as pool:
        assert_same(toy_envs.pool_rows(pool, ROWS), expected_rows(2, obs=obs))


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("action", toy_envs.ACTIONS)
def test_vector_environments_take_every_action_space(mode: AutoresetMode, action: str) -> None:
    with LocalEnvPool(SyncVectorEnv(makers(action=action), autoreset_mode=mode), seed=3) as pool:
        assert_same(toy_envs.pool_rows(pool, ROWS), expected_rows(3, action=action))


@pytest.mark.parametrize("mode", [None, *AutoresetMode])
def test_action_masks_belong_to_their_observation(mode: AutoresetMode | None) -> None:
    envs: Any = makers(masks=True) if mode is None else SyncVectorEnv(makers(masks=True), autoreset_mode=mode)
    with LocalEnvPool(envs, seed=4) as pool:
        assert_same(toy_envs.pool_rows(pool, ROWS), expected_rows(4, masks=True))


@pytest.mark.parametrize("mode", [None, *AutoresetMode])
def test_episodes_of_one_step_follow_each_other(mode: AutoresetMode | None) -> None:
    envs: Any = makers(2, max_length=1)
    if mode is not None:
        envs = SyncVectorEnv(envs, autoreset_mode=mode)
    with LocalEnvPool(envs, seed=5) as pool:
        assert_same(toy_envs.pool_rows(pool, ROWS), expected_rows(5, num_envs=2, max_length=1))


def test_worker_processes_give_the_rows_of_a_naive_loop() -> None:
    kwargs = {"obs": "dict", "action": "shifted", "masks": True}
    with SubprocEnvPool(makers(**kwargs), num_workers=2, seed=6) as pool:
        assert_same(toy_envs.pool_rows(pool, ROWS), expected_rows(6, **kwargs))
        assert pool.metrics()["env/steps_total"] > 0


def test_a_native_vector_environment_never_shows_its_phantom_step() -> None:
    envs = gymnasium.make_vec("CartPole-v1", num_envs=4, vectorization_mode="vector_entry_point", max_episode_steps=15)
    pool = LocalEnvPool(envs, seed=0)
    lengths, ended = np.zeros(4, int), np.zeros(4, bool)
    ends = 0
    for step in range(400):
        batch = pool.recv()
        toy_envs.check_batch(batch)
        for row, env_id in enumerate(batch.env_ids.tolist()):
            kind = batch.kind[row]
            assert (kind == StepKind.FIRST) == (ended[env_id] or step == 0)
            lengths[env_id] = 0 if kind == StepKind.FIRST else lengths[env_id] + 1
            assert batch.reward[row] == (0.0 if kind == StepKind.FIRST else 1.0)
            if kind == StepKind.FIRST:
                assert np.abs(batch.obs[row]).max() <= 0.05
            ended[env_id] = kind == StepKind.LAST
            assert ended[env_id] == (batch.terminated[row] or batch.truncated[row])
            if ended[env_id]:
                ends += 1
                assert batch.info["episode_length"][row] == batch.info["episode_return"][row] == lengths[env_id]
        ids = batch.env_ids[batch.num_last :]
        pool.send(np.full(len(ids), step % 2), ids)
    assert ends > 40
    assert pool.metrics()["env/episodes_total"] == ends
    pool.close()


def test_the_same_seed_gives_the_same_rows_and_environments_differ() -> None:
    rows = [toy_envs.pool_rows(LocalEnvPool(makers(2), seed=seed), 5) for seed in ([1, 2], [1, 2], [1, 3])]
    assert rows[0] == rows[1] != rows[2]
    assert rows[0][0][0] != rows[0][1][0]
