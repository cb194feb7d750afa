"""EnvPool's environments against gymnasium's: each row follows from the one before, also at the end of an episode."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

from surreal.base.errors import EnvError
from surreal.base.types import StepKind
from surreal.envs import ThreadedEnvPool, WrapperSpec, make_env
from surreal.envs.pools.envpool import envpool_name

ATARI = WrapperSpec("atari", {"noop_max": 0})


def make_pool(env_id: str, num_envs: int = 3, *, seed: int = 1, batch_size: int | None = None, **options: Any) -> Any:
    shown = {key: options[key] for key in ("wrappers", "frame_stack") if key in options}
    env = make_env(env_id, **shown)
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    env.close()
    return ThreadedEnvPool(env_id, num_envs, seed=seed, batch_size=batch_size, num_threads=2, **spaces, **options)


def rows_of(pool: ThreadedEnvPool, steps: int) -> Iterator[tuple[int, int, Any, float, bool, bool, Any]]:
    """Yield env id, kind, observation, reward, terminated, truncated and the action that was taken before each row."""
    rng = np.random.default_rng(0)
    given: dict[int, Any] = {}
    taken = 0
    while taken < steps:
        batch = pool.recv()
        for row, env_id in enumerate(batch.env_ids.tolist()):
            flags = bool(batch.terminated[row]), bool(batch.truncated[row])
            yield (
                env_id,
                int(batch.kind[row]),
                batch.obs[row].copy(),
                float(batch.reward[row]),
                *flags,
                given.get(env_id),
            )
        live = batch.env_ids[batch.num_last :]
        if isinstance(pool.action_space, gymnasium.spaces.Discrete):
            actions = rng.integers(pool.action_space.n, size=len(live))
        else:
            actions = rng.uniform(-1, 1, (len(live), *pool.action_space.shape)).astype(np.float32)
        given.update(zip(live.tolist(), actions, strict=True))
        pool.send(actions, live)
        taken += len(live)


def cartpole(obs: Any) -> gymnasium.Env[Any, Any]:
    env = gymnasium.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    env.state = np.asarray(obs, np.float64)  # type: ignore[attr-defined]
    return env


def pendulum(obs: Any) -> gymnasium.Env[Any, Any]:
    env = gymnasium.make("Pendulum-v1").unwrapped
    env.reset(seed=0)
    env.state = np.array([np.arctan2(obs[1], obs[0]), obs[2]])  # type: ignore[attr-defined]
    return env


@pytest.mark.parametrize("batch_size", [None, 3])
@pytest.mark.parametrize(("env_id", "begin", "limit"), [("CartPole-v1", cartpole, 30), ("Pendulum-v1", pendulum, 200)])
def test_each_row_follows_from_the_one_before_as_in_gymnasium(
    env_id: str, begin: Any, limit: int, batch_size: int | None
) -> None:
    kwargs = {"max_episode_steps": limit}
    before: dict[int, Any] = {}
    length, ends = dict.fromkeys(range(3), 0), {"terminated": 0, "truncated": 0}
    with make_pool(env_id, batch_size=batch_size, kwargs=kwargs) as pool:
        for slot, kind, obs, reward, terminated, truncated, action in rows_of(pool, 1800):
            if kind == StepKind.FIRST:
                assert reward == 0.0
                assert length[slot] == 0
            else:
                length[slot] += 1
                wanted, wanted_reward, is_terminal, _, _ = begin(before[slot]).step(action)
                # At the limit of its speed, EnvPool's pendulum moves by the speed before the limit.
                atol = 0.06 if env_id == "Pendulum-v1" and abs(obs[2]) == 8 else 1e-4
                np.testing.assert_allclose(obs, wanted, rtol=1e-4, atol=atol)
                assert reward == pytest.approx(wanted_reward, abs=1e-3)
                is_last = is_terminal or length[slot] == limit
                # On the last step before the limit, EnvPool cuts an episode also if it ends by itself.
                is_cut = length[slot] == limit
                assert kind == (StepKind.LAST if is_last else StepKind.MID)
                assert (terminated, truncated) == (is_last and not is_cut, is_cut)
                if is_last:
                    ends["terminated" if terminated else "truncated"] += 1
                    length[slot] = 0
            before[slot] = obs
    assert ends["truncated"] > 3
    assert (ends["terminated"] > 10) == (env_id == "CartPole-v1")


def test_a_mujoco_task_is_truncated_after_its_steps_with_its_true_final_observation() -> None:
    with make_pool("HalfCheetah-v5", 2) as pool:
        ends, before = 0, {}
        for slot, kind, obs, _, terminated, truncated, _ in rows_of(pool, 2100):
            assert obs.dtype == np.float64
            if kind == StepKind.LAST:
                ends += 1
                assert (terminated, truncated) == (False, True)
                # Joint angles move continuously; a first observation would be close to 0.
                assert np.abs(obs[:8] - before[slot][:8]).max() < np.abs(obs[8:]).max()
                assert np.abs(obs[8:]).max() > 0.5
            before[slot] = obs
        assert ends == 2
        assert pool.metrics()["env/episode_length_recent"] == 1000


@pytest.mark.parametrize("game", ["Pong", "Breakout"])
def test_frames_are_those_of_the_wrappers(game: str) -> None:
    """Frames, rewards and ends are the same; only the frame on which a game is over may differ."""
    kwargs = {"repeat_action_probability": 0.0}
    env = make_env(f"ALE/{game}-v5", kwargs=kwargs, wrappers=[ATARI])
    wanted, _ = env.reset(seed=0)
    env.unwrapped.ale.act(0)  # type: ignore[attr-defined]  # EnvPool takes one no-op at least
    with make_pool(f"ALE/{game}-v5", 1, kwargs=kwargs, wrappers=[ATARI]) as pool:
        rows = rows_of(pool, 400)
        next(rows)
        for _, kind, obs, reward, terminated, _, action in rows:
            wanted, wanted_reward, is_over, _, _ = env.step(action)
            assert (reward, terminated) == (wanted_reward, is_over)
            if kind == StepKind.LAST:
                break
            np.testing.assert_allclose(obs.astype(int), wanted.astype(int), atol=1)  # both round means of areas
    env.close()


def test_a_lost_life_ends_an_episode_and_the_score_is_that_of_the_whole_game() -> None:
    wrappers = [
        WrapperSpec("atari", {"noop_max": 0}),
        WrapperSpec("life_loss", {}),
        WrapperSpec("reward_scale", {"scale": 2.0}),
    ]
    with make_pool("ALE/Breakout-v5", 1, wrappers=wrappers, frame_stack=4) as pool:
        rng, score, lives, episodes = np.random.default_rng(0), 0.0, 0, 0
        while episodes < 2:
            batch = pool.recv()
            assert batch.obs.shape == (1, 4, 84, 84) or batch.num_last == 1
            score += float(batch.reward.sum()) / 2
            if batch.num_last:
                lives += 1
                if not np.isnan(batch.info["episode_return"][0]):
                    assert batch.info["episode_return"][0] == score
                    assert lives == 5
                    score, lives, episodes = 0.0, 0, episodes + 1
            live = batch.env_ids[batch.num_last :]
            pool.send(rng.integers(4, size=len(live)), live)
        assert pool.metrics()["env/episodes_total"] == 2


def test_the_same_seed_gives_the_same_rows() -> None:
    runs = []
    for seed in (1, 1, 2):
        with make_pool("CartPole-v1", seed=seed, batch_size=3) as pool:
            runs.append(np.stack([row[2] for row in rows_of(pool, 60)]))
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0][:3], runs[2][:3])


def test_ids_are_translated() -> None:
    assert envpool_name("ALE/MsPacman-v5") == "MsPacman-v5"
    assert envpool_name("dm_control/cartpole-balance_sparse-v0") == "CartpoleBalanceSparse-v1"
    assert envpool_name("HalfCheetah-v5") == "HalfCheetah-v5"
    with make_pool("dm_control/cartpole-balance-v0", 2) as pool:
        assert set(pool.recv().obs) == {"position", "velocity"}


def test_the_reward_of_a_reset_is_zero_whatever_its_memory_held(monkeypatch: pytest.MonkeyPatch) -> None:
    with make_pool("CartPole-v1", 1, batch_size=1) as pool:
        receive = pool._envs.recv

        def recv() -> tuple[Any, ...]:
            obs, reward, *rest, info = receive()
            return obs, np.where(info["elapsed_step"] == 0, np.float32(2e34), reward), *rest, info

        monkeypatch.setattr(pool._envs, "recv", recv)
        for _, kind, _, reward, *_ in rows_of(pool, 60):
            assert reward == (kind != StepKind.FIRST)
        metrics = pool.metrics()
        assert metrics["env/episodes_total"] >= 2
        assert metrics["env/episode_return_recent"] == metrics["env/episode_length_recent"]


def test_what_it_does_not_have_or_take_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EnvError, match="no environment Bandit-v0 for surreal/Bandit-v0; use the local pool"):
        make_pool("surreal/Bandit-v0")
    with pytest.raises(EnvError, match="take no wrappers, got reward_scale; use the local pool"):
        make_pool("CartPole-v1", wrappers=[WrapperSpec("reward_scale", {"scale": 2.0})])
    with pytest.raises(EnvError, match="does not stack frames; use the local pool"):
        make_pool("CartPole-v1", frame_stack=2)
    with pytest.raises(EnvError, match=r"cannot be made with .*bogus"):
        make_pool("CartPole-v1", kwargs={"bogus": 1})
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(EnvError, match=r"whose package is not installed; run: pip install .*envpool"):
        make_pool("CartPole-v1")


def test_actions_are_taken_once_and_only_from_environments_that_wait() -> None:
    with make_pool("CartPole-v1", 4) as pool:
        batch = pool.recv()
        assert len(batch.env_ids) == 2
        with pytest.raises(ValueError, match="must have shape"):
            pool.send(np.zeros((2, 1), np.int64), batch.env_ids)
        with pytest.raises(ValueError, match="wait for one"):
            pool.send(np.zeros(2, np.int64), batch.env_ids[[0, 0]])
        with pytest.raises(ValueError, match="wait for one"):
            pool.send(np.zeros(1, np.int64), np.array([4]))
        other = pool.recv()
        assert sorted([*batch.env_ids, *other.env_ids]) == [0, 1, 2, 3]
        assert len(pool.recv().env_ids) == 0  # all wait for an action
        pool.send(np.zeros(2, np.int64), batch.env_ids)
        assert sorted(pool.recv().env_ids) == sorted(batch.env_ids)
