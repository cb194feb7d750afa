"""Games with PettingZoo's interface: who sees what when, rewards in between, masks, and ids that cannot be used."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import toy_games
from gymnasium import spaces

from surreal.base.errors import EnvError
from surreal.base.system.program import install_command
from surreal.envs.players.make import check_game, make_game
from surreal.envs.players.pettingzoo import ParallelGame
from surreal.envs.players.views import EveryPlayer, OnePlayer, find_player


def test_a_player_that_dies_has_a_last_view_and_no_more() -> None:
    game = ParallelGame(toy_games.Chase(lives=(1, 3)), "chase")
    assert sorted(game.reset(0)) == [0, 1]
    views = game.step({0: 0, 1: 0})
    assert views[0].terminated and not views[1].has_ended and not game.is_over
    views = game.step({1: 0})
    assert list(views) == [1]
    views = game.step({1: 0})
    assert views[1].terminated and game.is_over


def test_rewards_of_a_player_that_is_not_to_act_are_kept_for_its_next_view() -> None:
    game = ParallelGame(toy_games.Turns(rewards=[(1, 10), (2, 20), (3, 30), (4, 40)]), "turns")
    assert list(game.reset()) == [0]
    assert game.step({0: 0})[1].reward == 10
    assert game.step({1: 0})[0].reward == 1 + 2
    assert game.step({0: 0})[1].reward == 20 + 30
    views = game.step({1: 0})
    assert game.is_over
    assert (views[0].reward, views[1].reward) == (3 + 4, 40)


def test_classic_games_are_played_in_turn_with_their_masks() -> None:
    game = make_game("pettingzoo:classic/tictactoe_v3")
    assert game.observation_space == spaces.Box(0, 1, (3, 3, 2), np.int8)
    views = game.reset(0)
    for player, square in ((0, 0), (1, 3), (0, 1), (1, 4)):
        assert list(views) == [player]
        mask = views[player].action_mask
        assert mask is not None and mask[square]
        views = game.step({player: square})
        assert not next(iter(views.values())).action_mask[square]  # type: ignore[index]
    views = game.step({0: 2})
    assert game.is_over
    assert {player: (view.reward, view.terminated) for player, view in views.items()} == {0: (1, True), 1: (-1, True)}
    # Nothing is legal any more, but a maximum over nothing would be no number.
    assert all(view.action_mask is not None and view.action_mask.any() for view in views.values())


def test_a_game_in_turn_that_says_it_can_is_played_at_the_same_time() -> None:
    game = make_game("pettingzoo.classic.rps_v2")
    views = game.reset(0)
    views = game.step({0: 1, 1: 0})
    assert [views[player].reward for player in (0, 1)] == [1, -1]


def test_vectors_and_actions_of_different_sizes_are_evened_out() -> None:
    game = make_game("game:toy_games.Unlike", player_id=True)
    assert game.observation_space["obs"].shape == (4,)
    views = game.reset(0)
    np.testing.assert_array_equal(views[0].obs["obs"], [1, 1, 0, 0])
    np.testing.assert_array_equal(views[1].obs["player"], [0, 1])
    np.testing.assert_array_equal(views[0].action_mask, [True, True, False])  # type: ignore[arg-type]
    assert views[1].action_mask is not None and views[1].action_mask.all()
    with pytest.raises(EnvError, match="player 0 has 2 actions, but got 2"):
        game.step({0: 2, 1: 2})


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("game:tictactoo", "did you mean game:tictactoe"),
        ("game:no_such_module.Game", "cannot be imported: No module named 'no_such_module'"),
        ("game:surreal.envs.examples", "cannot be called"),
        ("pettingzoo:classic/nothing_v1", "PettingZoo knows no 'classic/nothing_v1'"),
        ("pettingzoo:mpe2.simple_nothing_v3", "No module named 'mpe2.simple_nothing_v3'"),
    ],
)
def test_an_id_of_nothing_says_what_is_wrong(env_id: str, message: str) -> None:
    with pytest.raises(EnvError, match=message):
        check_game(env_id)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *_: Any) -> Any:
        raise ModuleNotFoundError("No module named 'mpe2'", name="mpe2")

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(EnvError, match=re.escape(install_command("pettingzoo"))):
        check_game("pettingzoo:mpe2.simple_spread_v3")


def test_what_no_policy_can_share_or_is_no_game_is_refused() -> None:
    with pytest.raises(EnvError, match="cannot share a policy: player 0 sees"):
        make_game("game:toy_games.Apart")
    with pytest.raises(EnvError, match="nor has PettingZoo's interface"):
        make_game("game:surreal.envs.examples.Bandit")
    with pytest.raises(EnvError, match=r"cannot be made with \{'sides': 4\}"):
        make_game("game:tictactoe", kwargs={"sides": 4})


def test_every_player_counts_the_mean_over_the_players() -> None:
    env = EveryPlayer(make_game("game:toy_games.Chase", kwargs={"lives": (1, 3)}))
    _, info = env.reset(seed=0)
    seen, total, done = [info["player_number"]], 0.0, False
    while not done:
        _, reward, terminated, truncated, info = env.step(0)
        total, done = total + reward, terminated or truncated
        seen += [info["player_number"]] if not done else []
    assert seen == [0, 1, 1, 1]
    assert terminated and not truncated
    assert total == (1 * 1 + 3 * 2) / 2  # each player gets its number + 1 a step


def test_one_player_meets_the_reference_from_both_sides_and_repeats_with_its_seed() -> None:
    env = OnePlayer(make_game("game:tictactoe"), find_player("random", spaces.Discrete(9)))

    def play(seed: int) -> tuple[int, list[float]]:
        obs, info = env.reset(seed=seed)
        begins, rewards, done = not obs.any(), [], False
        while not done:
            obs, reward, done, _, info = env.step(int(np.flatnonzero(info["action_mask"])[0]))
            rewards.append(reward)
        return begins, rewards

    games = [play(seed) for seed in range(40)]
    assert games == [play(seed) for seed in range(40)]
    assert 8 <= sum(begins for begins, _ in games) <= 32
    assert all(reward == 0 for _, rewards in games for reward in rewards[:-1])
    # The last move of a game is often the reference's: its win arrives all the same.
    assert {rewards[-1] for _, rewards in games} == {-1.0, 0.0, 1.0}


def test_a_reference_is_found_or_refused() -> None:
    assert callable(find_player("surreal.plugins.games.tictactoe.careful", spaces.Discrete(9)))
    with pytest.raises(EnvError, match="use `random`, or an import path"):
        find_player("randon", spaces.Discrete(9))
    with pytest.raises(EnvError, match="cannot be imported"):
        find_player("surreal.plugins.games.tictactoe.careless", spaces.Discrete(9))
