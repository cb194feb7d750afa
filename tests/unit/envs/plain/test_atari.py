"""Atari games with ale-py itself: preprocessing, lives, scores, stacks, and ALE's own vector environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from surreal.base.errors import EnvError
from surreal.base.types import StepBatch, StepKind
from surreal.envs import Atari, EpisodeMonitor, LocalEnvPool, WrapperSpec, make_env, make_vector_env
from surreal.envs.atari.preprocessing import AreaResize, AtariPreprocessing, LifeLoss, load_ale
from surreal.envs.atari.vector import AtariVector
from surreal.envs.pools.base import EnvPool

#: Without any chance, so that games can be compared.
EXACT = (WrapperSpec("atari", {"noop_max": 0}), WrapperSpec("life_loss"), WrapperSpec("reward_sign"))
STICKLESS = {"repeat_action_probability": 0.0}


FIRING = (WrapperSpec("atari", {"noop_max": 0, "fire_on_reset": True}), *EXACT[1:])


def breakout(*, frame_stack: int = 1, training: bool = True, wrappers: Any = EXACT) -> gymnasium.Env[Any, Any]:
    return make_env("ALE/Breakout-v5", kwargs=STICKLESS, wrappers=wrappers, frame_stack=frame_stack, training=training)


def layers(env: Any) -> list[type]:
    found = [type(env)]
    while isinstance(env, gymnasium.Wrapper):
        env = env.env
        found.append(type(env))
    return found


@pytest.mark.parametrize(("old", "new"), [((30, 40), (12, 21)), ((6, 9), (4, 3)), ((7, 5), (7, 2)), ((5, 5), (3, 4))])
def test_resizing_averages_the_area_under_each_pixel(old: tuple[int, int], new: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, old, np.uint8)
    # Every old pixel is cut into new x new parts, which fit both grids.
    fine = np.repeat(np.repeat(image.astype(np.float64), new[0], 0), new[1], 1)
    naive = fine.reshape(new[0], old[0], new[1], old[1]).mean((1, 3))
    found = AreaResize(old, new)(image)
    assert found.shape == new
    assert found.dtype == np.uint8
    np.testing.assert_allclose(found, naive, atol=0.5 + 1e-3)


def test_a_step_shows_the_larger_of_the_last_two_frames_and_adds_up_rewards() -> None:
    load_ale()
    raw = gymnasium.make("ALE/Pong-v5", frameskip=1, obs_type="grayscale", **STICKLESS)
    env = make_env("ALE/Pong-v5", kwargs=STICKLESS, wrappers=EXACT[:1])
    resize = AreaResize((210, 160), (84, 84))
    first, _ = raw.reset(seed=3)
    obs, info = env.reset(seed=3)
    np.testing.assert_array_equal(obs, resize(first))
    assert obs in env.observation_space
    total, expected = 0.0, 0.0
    for step in range(120):
        frames = []
        for _ in range(4):
            frame, reward, *_ = raw.step(step % 6)
            frames.append(frame)
            expected += float(reward)
        obs, reward, _, _, info = env.step(step % 6)
        total += float(reward)
        np.testing.assert_array_equal(obs, resize(np.maximum(frames[2], frames[3])))
    assert info["episode_frame_number"] == 480
    assert total == expected < 0
    env.close()
    raw.close()


@pytest.mark.slow
def test_no_ops_vary_the_start_and_repeat_with_the_seed() -> None:
    env = make_env("ALE/Pong-v5", wrappers=(WrapperSpec("atari", {"noop_max": 30}),))
    seeds = [*range(8), *range(8)]
    frames = [env.reset(seed=seed)[1]["episode_frame_number"] for seed in seeds]
    assert frames[:8] == frames[8:]
    assert len(set(frames)) > 3
    assert all(1 <= frame <= 30 for frame in frames)
    env.close()


def test_training_wrappers_are_left_out_of_evaluation() -> None:
    training, evaluation = breakout(), breakout(training=False)
    assert LifeLoss in layers(training)
    assert LifeLoss not in layers(evaluation)
    assert AtariPreprocessing in layers(evaluation)
    evaluation.reset(seed=0)
    rng, lives, is_over = np.random.default_rng(0), set(), False
    while not is_over:
        *_, is_over, _, info = evaluation.step(int(rng.integers(4)))
        lives.add(info["lives"])
    assert lives == {0, 1, 2, 3, 4, 5}
    training.close()
    evaluation.close()


def test_a_lost_life_ends_the_episode_but_not_the_game() -> None:
    env = breakout()
    _, info = env.reset(seed=0)
    rng, starts, ends = np.random.default_rng(0), [], []
    for _ in range(2 * 5 + 1):
        starts.append((info["lives"], info["episode_frame_number"]))
        is_over = False
        while not is_over:
            _, reward, is_over, truncated, info = env.step(int(rng.integers(4)))
            assert abs(float(reward)) <= 1
            assert not truncated
        ends.append((info["lives"], info["episode_frame_number"]))
        _, info = env.reset()
    assert [lives for lives, _ in starts] == [5, 4, 3, 2, 1] * 2 + [5]
    assert [lives for lives, _ in ends] == [4, 3, 2, 1, 0] * 2 + [4]
    # Between two lives there is one no-op, and between two games a reset.
    for (_, end), (lives, start) in zip(ends, starts[1:], strict=False):
        assert start == (0 if lives == 5 else end + 4)
    env.close()


class Lives(gymnasium.Env[int, int]):
    """Its observations count steps; a script says how many lives are left after each, -1 for the end."""

    def __init__(self, script: list[int]) -> None:
        self.observation_space, self.action_space = gymnasium.spaces.Discrete(100), gymnasium.spaces.Discrete(2)
        self.script, self.count, self.resets = script, 0, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        self.resets += 1
        return self.count, {"lives": 3}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.count += 1
        lives = self.script[self.count - 1]
        return self.count, 1.0, lives == -1, False, {"lives": max(lives, 0)}


def test_a_game_that_ends_in_the_no_op_between_two_lives_is_reset() -> None:
    game = Lives([3, 2, -1])
    env = LifeLoss(game)
    env.reset()
    assert [env.step(0)[2] for _ in range(2)] == [False, True]
    env.reset()
    assert (game.resets, game.count) == (2, 3)


def test_lives_that_vanish_for_a_moment_or_come_back_end_nothing() -> None:
    env = LifeLoss(Lives([3, 0, 0, 3, 4, 3, 3, -1]))
    env.reset()
    assert [env.step(0)[2] for _ in range(8)] == [False] * 5 + [True] + [False, True]


def test_a_seed_begins_a_new_game_after_a_lost_life_too() -> None:
    game = Lives([2, 2])
    env = LifeLoss(game)
    env.reset()
    assert env.step(0)[2]
    env.reset(seed=1)
    assert (game.resets, game.count) == (2, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("wrappers", "training"), [(EXACT, True), (EXACT, False), (FIRING, True)])
def test_vector_environment_does_what_single_games_do(wrappers: Any, training: bool) -> None:
    options: Any = {"frame_stack": 4, "wrappers": wrappers, "training": training}
    single = breakout(**options)
    vector = make_vector_env("ALE/Breakout-v5", 2, kwargs=STICKLESS, **options)
    assert isinstance(vector, AtariVector)
    assert vector.single_observation_space == single.observation_space
    assert vector.single_action_space == single.action_space
    obs, _ = single.reset(seed=1)
    many, _ = vector.reset(seed=1)
    rng, is_over, lost = np.random.default_rng(0), False, 0
    for _ in range(300):
        action = int(rng.integers(4))
        if is_over:
            (obs, _), outcome = single.reset(), (False, False)
        else:
            obs, reward, *outcome, _ = single.step(action)  # type: ignore[assignment]
        many, rewards, terminated, truncated, _ = vector.step(np.array([action, action]))
        assert (terminated[0], truncated[0]) == tuple(outcome)
        if not is_over:
            assert rewards[0] == reward
        is_over = any(outcome)
        lost += is_over
        if not is_over:  # where a game ends in a skip, ALE shows an older frame
            # OpenCV rounds halves differently here and there.
            assert np.abs(obs.astype(int) - many[0]).max() <= 1
        np.testing.assert_array_equal(many[0], many[1])
    assert lost > (5 if training else 0)
    single.close()
    vector.close()


def play(pool: EnvPool, num_batches: int) -> list[tuple[StepBatch, NDArray[Any]]]:
    """Random actions; observations are copied, for they are valid until the next batch."""
    rng, found = np.random.default_rng(0), []
    for _ in range(num_batches):
        batch = pool.recv()
        obs = np.array(batch.obs)
        found.append((batch, obs))
        ids = batch.env_ids[batch.num_last :]
        pool.send(rng.integers(4, size=len(ids)), ids)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vector", "local"])
def test_pool_rows_have_whole_stacks_and_raw_scores(kind: str) -> None:
    if kind == "vector":
        envs: Any = make_vector_env("ALE/Breakout-v5", 3, kwargs=STICKLESS, wrappers=EXACT, frame_stack=4)
    else:
        envs = [lambda: breakout(frame_stack=4)] * 3
    pool = LocalEnvPool(envs, seed=2)
    history: dict[int, list[NDArray[Any]]] = {}
    scores, lost = [], 0
    for batch, obs in play(pool, 450):
        for row, env_id in enumerate(batch.env_ids.tolist()):
            if batch.kind[row] == StepKind.FIRST:
                history[env_id] = [obs[row, -1]] * 4
            else:
                history[env_id] = [*history[env_id][1:], obs[row, -1]]
            np.testing.assert_array_equal(obs[row], history[env_id])
        assert np.abs(batch.reward).max() <= 1
        for score, length in zip(*(batch.info[key][: batch.num_last] for key in ("episode_return", "episode_length")),
                                 strict=True) if batch.num_last else ():  # fmt: skip
            if np.isnan(score):
                lost += 1
            else:
                scores.append((score, length))
    assert len(scores) >= 3
    assert lost >= 3 * len(scores)
    assert all(length > 80 for _, length in scores)
    assert pool.metrics()["env/episodes_total"] == len(scores)
    pool.close()


def test_raw_rewards_of_the_vector_environment_are_counted_below_the_clipping() -> None:
    class Games(gymnasium.vector.VectorEnv[Any, Any, Any]):
        """Two games of one frame each; the first loses a life at its second step, both end at the fourth."""

        num_envs = 2
        metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012
        single_observation_space = gymnasium.spaces.Box(0, 255, (1, 2, 2), np.uint8)
        single_action_space = gymnasium.spaces.Discrete(3)
        action_space = gymnasium.spaces.MultiDiscrete([3, 3])

        def __init__(self) -> None:
            self.time, self.actions = 0, []  # type: list[Any]

        def _frames(self) -> NDArray[np.uint8]:
            return np.full((2, 1, 2, 2), self.time, np.uint8)

        def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
            return self._frames(), {"lives": np.array([2, 1])}

        def step(self, actions: NDArray[Any]) -> Any:
            self.time += 1
            self.actions.append(actions.tolist())
            is_over = np.full(2, self.time == 4)
            lives = np.array([2 if self.time < 2 else 1, 1])
            reward = np.array([5, -7]) if self.time <= 4 else np.zeros(2, int)
            return self._frames(), reward, is_over, np.zeros(2, np.bool_), {"lives": lives}

    games = Games()
    vector = AtariVector(games, frame_stack=2, cuts_lives=True, rewards=[np.sign])
    vector.reset(seed=1)
    both = np.array([0, 1])
    ends, stacks = [], []
    for _ in range(5):
        obs, reward, terminated, _, _ = vector.step(np.array([1, 2]))
        ends.append(terminated.tolist())
        stacks.append(obs[:, :, 0, 0].tolist())
        if terminated.any():
            episodes = vector.take_episodes(both)
    np.testing.assert_array_equal(reward, [0, 0])
    assert ends == [[False, False], [True, False], [False, False], [True, True], [False, False]]
    # The action after a lost life is a no-op, whatever the agent wants; and its stack begins anew.
    assert games.actions == [[1, 2], [1, 2], [0, 2], [1, 2], [0, 0]]
    assert stacks == [[[0, 1], [0, 1]], [[1, 2], [1, 2]], [[3, 3], [2, 3]], [[3, 4], [3, 4]], [[5, 5], [5, 5]]]
    np.testing.assert_array_equal(episodes[0], [20.0, -28.0])
    np.testing.assert_array_equal(episodes[1], [4, 4])


def test_game_that_waits_for_fire_is_played_to_its_end_by_an_agent_that_never_presses_it() -> None:
    env = breakout(wrappers=FIRING, training=False)
    env.reset(seed=0)
    steps, is_over = 0, False
    while not is_over and steps < 2000:
        *_, is_over, _, info = env.step(0)
        steps += 1
    assert (is_over, info["lives"]) == (True, 0)
    env.close()
    waiting = breakout(training=False)
    waiting.reset(seed=0)
    assert not any(waiting.step(0)[2] for _ in range(steps))
    waiting.close()


def test_fire_after_a_lost_life_replaces_no_chosen_action() -> None:
    load_ale()

    class Recorder(gymnasium.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            frames.append(action)
            return super().step(action)

    frames: list[int] = []
    env = AtariPreprocessing(
        Recorder(gymnasium.make("ALE/Breakout-v5", frameskip=1, **STICKLESS)), noop_max=0, fire_on_reset=True
    )
    env.reset(seed=0)
    lives = 5
    while lives == 5:
        frames.clear()
        lives = env.step(3)[4]["lives"]
    assert frames == [3] * 4 + [1] * 4  # FIRE takes further frames of the step that lost the life
    frames.clear()
    env.step(3)
    assert frames == [3] * 4
    env.close()
    with pytest.raises(EnvError, match="fire_on_reset needs life_loss"):
        make_vector_env("ALE/Breakout-v5", 2, wrappers=FIRING[:1])


def test_game_without_fire_begins_as_ever() -> None:
    env = make_env("ALE/Freeway-v5", kwargs=STICKLESS, wrappers=FIRING[:1])
    assert env.reset(seed=0)[1]["episode_frame_number"] == 0
    env.close()


def test_plain_game_is_preprocessed_and_whole_unless_it_is_for_training() -> None:
    for training in (False, True):
        env = Atari("Breakout", training=training, preprocessing={"noop_max": 5}, **STICKLESS)
        obs, _ = env.reset(seed=0)
        assert np.shape(obs) == (84, 84)
        rng, done = np.random.default_rng(0), False
        while not done:
            obs, _, done, info = env.step(int(rng.integers(4)))
        assert (info["lives"] > 0) == training
        env.close()


@pytest.mark.parametrize("is_resetting", [False, True])
def test_the_monitor_counts_whole_games_and_scores_while_training_sees_lives(is_resetting: bool) -> None:
    env = EpisodeMonitor(Atari("Breakout", **STICKLESS), report_every_s=None)
    env.reset(seed=0)
    rng, steps, lives, signs, games = np.random.default_rng(0), 0, 0, 0.0, []
    is_new = True
    while not (is_new and signs > 0.0):
        _, reward, done, info = env.step(int(rng.integers(4)))
        is_new_game = is_new and "phantom" in info  # then this was no step of a game
        steps, lives, signs = steps + (not is_new_game), lives + done, signs + reward
        if is_new := "episode" in info:
            games.append(info["episode"])
        if done and is_resetting:
            env.reset()
    assert lives == 5 * len(games)
    assert sum(game["return"] for game in games) >= signs
    # The no-op after each lost life is a step of the game; a loop that never resets sees it as one.
    assert sum(game["length"] for game in games) == steps + (4 * len(games) if is_resetting else 0)
    assert env.episodes == [(game["return"], game["length"]) for game in games]
    env.close()


def test_games_and_settings_that_do_not_exist_are_refused() -> None:
    with pytest.raises(EnvError, match=r"did you mean ALE/Pong-v5"):
        make_env("ALE/Pongg-v5", wrappers=EXACT)
    with pytest.raises(EnvError, match=r"leave `frameskip` out"):
        make_env("ALE/Pong-v5", kwargs={"frameskip": 4}, wrappers=EXACT)
    with pytest.raises(EnvError, match="not a game of ale-py"):
        make_env("CartPole-v1", wrappers=EXACT)
    with pytest.raises(EnvError, match="put the wrapper `atari` first"):
        make_vector_env("ALE/Pong-v5", 2)
    with pytest.raises(EnvError, match="time_limit does not work around a vector environment"):
        make_vector_env("ALE/Pong-v5", 2, wrappers=(*EXACT, WrapperSpec("time_limit", {"max_episode_steps": 9})))
    with pytest.raises(EnvError, match="does not stack frames"):
        make_vector_env("CartPole-v1", 2, frame_stack=4)
    with pytest.raises(EnvError, match="cannot be made"):
        make_vector_env("ALE/Pong-v5", 2, kwargs={"colour": 1}, wrappers=EXACT)
