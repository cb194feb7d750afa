"""Making environments by id: what is missing is named, with the remedy."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import error as gym_error

from surreal.base.errors import EnvError
from surreal.envs import WrapperSpec, check_env_id, make_env, make_vector_env, record_video
from surreal.envs.wrappers.named import ObsClip, Stagger, select_wrappers, wrapper_names


@pytest.mark.parametrize(
    ("env_id", "nearest"),
    [
        ("CartPol-v1", "CartPole-v1"),
        ("cartpole-v1", "CartPole-v1"),
        ("CartPole-v7", "CartPole-v1"),
        ("Acrobat", "Acro"),
        ("halfcheeta-v5", "HalfCheetah-v5"),
    ],
)
def test_a_misspelt_id_gets_the_nearest_one(env_id: str, nearest: str) -> None:
    with pytest.raises(EnvError, match=f"{env_id}' does not exist; did you mean {nearest}"):
        make_env(env_id)


def test_an_id_that_is_like_no_other_gets_no_suggestion() -> None:
    with pytest.raises(EnvError, match=r"'Nope-v1' does not exist; see gymnasium\.registry"):
        make_env("Nope-v1")


def test_an_id_is_checked_without_making_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gymnasium, "make", None)
    check_env_id("CartPole-v1")
    check_env_id("gymnasium.envs.classic_control:CartPole-v1")
    with pytest.raises(EnvError, match="did you mean CartPole-v1"):
        check_env_id("CartPol-v1")
    with pytest.raises(EnvError, match="No module named 'nowhere'"):
        check_env_id("nowhere:CartPole-v1")


def test_an_id_like_no_other_gets_a_hint() -> None:
    with pytest.raises(EnvError, match=r"does not exist; see gymnasium\.registry"):
        make_env("qqqqqqq")


@pytest.mark.parametrize(
    ("env_id", "error", "extra"),
    [
        ("LunarLander-v3", gym_error.DependencyNotInstalled("Box2D is not installed"), "box2d"),
        ("Ant-v5", ModuleNotFoundError("No module named 'mujoco'"), "mujoco"),
        ("ALE/Pong-v5", gym_error.NamespaceNotFound("Namespace ALE not found"), "atari"),
    ],
)
def test_a_missing_package_is_an_extra(
    monkeypatch: pytest.MonkeyPatch, env_id: str, error: Exception, extra: str
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr(gymnasium, "make", refuse)
    with pytest.raises(EnvError, match=rf"{env_id} needs .* pip install .*\[{extra}\]'"):
        make_env(env_id)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(EnvError, match=r"CartPole-v1 cannot be made with \{'wheels': 3\}"):
        make_env("CartPole-v1", kwargs={"wheels": 3})


def test_a_seed_makes_the_first_episode_reproducible() -> None:
    first, second = (make_env("CartPole-v1", seed=5).reset()[0] for _ in range(2))
    assert np.array_equal(first, second)


def test_wrappers_of_training_are_left_out_of_evaluation() -> None:
    specs = [
        WrapperSpec("reward_clip"),
        WrapperSpec("flatten"),
        WrapperSpec("time_limit", {"max_episode_steps": 2}, True),
    ]
    assert [spec.name for spec in select_wrappers(specs, training=False)] == ["flatten"]
    for training, length in ((True, 2), (False, 10)):
        env = make_env("surreal/CartPoleDict-v0", wrappers=specs, training=training)
        assert env.reset(seed=0)[0].shape == (4,)
        steps = 1
        while not any(env.step(0)[2:4]):
            steps += 1
        assert steps == length if training else steps > 2


def test_wrappers_are_found_by_import_path_and_applied_in_order() -> None:
    specs = [
        WrapperSpec("reward_scale", {"scale": 5}),
        WrapperSpec("surreal.envs.wrappers.named:RewardClip", {"high": 2.0}),
        WrapperSpec("surreal.envs.wrappers.named.RewardScale", {"scale": 0.5}),
    ]
    env = make_env("CartPole-v1", wrappers=specs)
    env.reset()
    assert env.step(0)[1] == 1.0
    sign = make_env("CartPole-v1", wrappers=[WrapperSpec("reward_scale", {"scale": -3}), WrapperSpec("reward_sign")])
    sign.reset()
    assert sign.step(0)[1] == -1.0


def test_staggered_environments_end_their_first_episode_at_different_steps_and_all_others_as_always() -> None:
    stagger = WrapperSpec("stagger", {"steps": 20})
    envs = [make_env("Pendulum-v1", wrappers=[stagger], seed=seed) for seed in range(12)]

    def play(env: gymnasium.Env[Any, Any]) -> int:
        env.reset()
        for length in itertools.count(1):
            _, _, terminated, truncated, _ = env.step(np.zeros(1, np.float32))
            assert not terminated
            if truncated:
                return length
        raise AssertionError

    first = [play(env) for env in envs]
    assert len(set(first)) > 6
    assert 1 <= min(first) <= max(first) <= 20
    assert [play(env) for env in envs] == [200] * 12
    again = make_env("Pendulum-v1", wrappers=[stagger], seed=0)
    assert play(again) == first[0]
    assert select_wrappers([stagger], training=False) == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (WrapperSpec("reward_clp"), "did you mean reward_clip"),
        (WrapperSpec("qqq"), f"use one of {', '.join(wrapper_names())}"),
        (WrapperSpec("nowhere.Wrapper"), "cannot be imported"),
        (WrapperSpec("surreal.envs.wrappers.named.Nothing"), "cannot be imported"),
        (WrapperSpec("surreal.envs.wrappers.named._TRAINING_ONLY"), "is a frozenset"),
        (WrapperSpec("reward_clip", {"lo": 2}), "does not take the arguments"),
        (WrapperSpec("reward_clip", {"low": 2}), "refuses .*low is 2"),
        (WrapperSpec("obs_clip", {"limit": 0}), "refuses .*limit is 0; it must be > 0"),
        (WrapperSpec("obs_scale", {"scale": [1, 0, 1, 1]}), "refuses .*numbers other than 0"),
        (WrapperSpec("obs_scale", {"scale": [1, 2]}), "refuses .*shape"),
        (WrapperSpec("builtins.type"), "made a type"),
        (WrapperSpec("stagger", {"steps": 0}), "refuses .*steps is 0; it must be >= 1"),
    ],
)
def test_a_wrong_wrapper_is_named(spec: WrapperSpec, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        make_env("CartPole-v1", wrappers=[spec])


def test_observations_without_bounds_are_clipped_and_nan_is_not_hidden() -> None:
    env = make_env("CartPole-v1", wrappers=[WrapperSpec("obs_clip", {"limit": 3.0})])
    box: Any = env.observation_space
    assert box.high.tolist() == pytest.approx([3.0, 3.0, 0.4188790, 3.0])
    clip: Any = env
    while not isinstance(clip, ObsClip):
        clip = clip.env
    seen = clip.observation(np.array([1.0, 3e38, -np.inf, np.nan], np.float32))
    assert seen.dtype == np.float32
    np.testing.assert_allclose(seen, [1.0, 3.0, -0.4188790, np.nan], rtol=1e-6)
    with pytest.raises(EnvError, match="only a Box of floats can be clipped"):
        make_env("FrozenLake-v1", wrappers=[WrapperSpec("obs_clip")])


def test_observations_are_scaled_and_their_bounds_with_them() -> None:
    env = make_env("CartPole-v1", wrappers=[WrapperSpec("obs_scale", {"scale": [0.5, 1, -10, 2]})])
    box: Any = env.observation_space
    assert box.high.tolist() == pytest.approx([2.4, np.inf, 4.1887902, np.inf])
    assert box.low.tolist() == pytest.approx([-2.4, -np.inf, -4.1887902, -np.inf])
    plain = make_env("CartPole-v1")
    obs, _ = env.reset(seed=3)
    assert obs.dtype == np.float32
    assert env.observation_space.contains(obs)
    np.testing.assert_allclose(obs, plain.reset(seed=3)[0] * np.float32([0.5, 1, -10, 2]), rtol=1e-6)
    with pytest.raises(EnvError, match="only a Box of floats can be scaled"):
        make_env("FrozenLake-v1", wrappers=[WrapperSpec("obs_scale", {"scale": 2})])


@pytest.mark.parametrize("stack", [1, 3])
def test_last_action_and_reward_are_part_of_the_observation(stack: int) -> None:
    env = make_env("CartPole-v1", wrappers=[WrapperSpec("last_step", {"reward_limit": 0.5})], frame_stack=stack)
    rng, action, reward = np.random.default_rng(0), None, 0.0
    obs, _ = env.reset(seed=0)
    for _ in range(60):
        newest = obs if stack == 1 else {name: leaf[-1] for name, leaf in obs.items()}
        assert env.observation_space.contains(obs)
        assert newest["last_action"].tolist() == [float(action == 0), float(action == 1)]
        assert newest["last_reward"].tolist() == [min(reward, 0.5)]
        action = int(rng.integers(2))
        obs, reward, is_over, *_ = env.step(action)  # type: ignore[assignment]
        if is_over:
            (obs, _), action, reward = env.reset(), None, 0.0
    with pytest.raises(EnvError, match="already"):
        make_env("CartPole-v1", wrappers=[WrapperSpec("last_step")] * 2)


def test_vector_environments_are_those_of_the_package() -> None:
    envs = make_vector_env(
        "CartPole-v1", 3, kwargs={"max_episode_steps": 7}, wrappers=[WrapperSpec("reward_clip")], training=False
    )
    assert envs.num_envs == 3
    with pytest.raises(EnvError, match="has no vector environment"):
        make_vector_env("Acrobot-v1", 3)
    with pytest.raises(EnvError, match="takes no wrappers, got reward_clip"):
        make_vector_env("CartPole-v1", 3, wrappers=[WrapperSpec("reward_clip")])
    with pytest.raises(EnvError, match="did you mean"):
        make_vector_env("CartPol-v1", 3)
    with pytest.raises(EnvError, match="cannot be made"):
        make_vector_env("CartPole-v1", 3, kwargs={"wheels": 3})


def test_recording_needs_images() -> None:
    with pytest.raises(EnvError, match="the environment has None"):
        record_video(make_env("CartPole-v1"), "videos")
    with pytest.raises(ValueError, match="every is 0"):
        record_video(make_env("CartPole-v1"), "videos", every=0)


def test_the_dict_example_is_cartpole_in_two_parts() -> None:
    env, plain = make_env("surreal/CartPoleDict-v0"), make_env("CartPole-v1")
    obs, whole = env.reset(seed=3)[0], plain.reset(seed=3)[0]
    for _ in range(5):
        assert env.observation_space.contains(obs)
        assert np.array_equal(obs["position"], whole[::2])
        assert np.array_equal(obs["velocity"], whole[1::2])
        obs, whole = env.step(1)[0], plain.step(1)[0]


def test_stagger_draws_from_an_environment_with_an_old_random_state() -> None:
    """dm_control's environments have a `RandomState`."""
    env = gymnasium.make("CartPole-v1").unwrapped
    env._np_random = np.random.RandomState(0)  # type: ignore[assignment]
    staggered = Stagger(env, steps=5)
    staggered.reset()
    assert 1 <= staggered._left <= 5
