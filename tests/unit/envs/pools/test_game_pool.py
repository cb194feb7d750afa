"""Rows of games: each player a slot, opponents inside, ends by others, and games at fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import toy_games
from numpy.typing import NDArray
from surreal.envs.players.tictactoe import TicTacToe

from surreal.base.errors import EnvError
from surreal.base.types import StepBatch, StepKind
from surreal.envs.players.base import PlayerRoles, UniformGame
from surreal.envs.players.pettingzoo import ParallelGame
from surreal.envs.pools.game_pool import GamePool


class Scripted:
    """Opponents for tests: the agent plays for `agent`, of whose players those in `recorded` are experience."""

    def __init__(self, agent: tuple[bool, ...], recorded: tuple[bool, ...] | None = None) -> None:
        self.seating = PlayerRoles(np.array(agent), np.array(recorded or agent))
        self.ends: list[tuple[int, list[float]]] = []
        self.asked: list[tuple[list[int], list[bool]]] = []

    def begin(self, game: int) -> PlayerRoles:
        return self.seating

    def end(self, game: int, returns: NDArray[np.float64]) -> None:
        self.ends.append((game, returns.tolist()))

    def act(self, slots: NDArray[np.int64], obs: Any, is_first: NDArray[np.bool_], action_mask: Any) -> NDArray[Any]:
        self.asked.append((slots.tolist(), is_first.tolist()))
        return np.zeros(len(slots), np.int64) if action_mask is None else action_mask.argmax(axis=1)

    def maintain(self) -> None:
        pass

    def metrics(self) -> dict[str, float]:
        return {}


def pool_of(*games: Any, opponents: Scripted | None = None, **options: Any) -> GamePool:
    makers = [lambda game=game: UniformGame(ParallelGame(game(), "toy"), "toy") for game in games]
    return GamePool(makers, seed=0, opponents=opponents, **options)


def turn(pool: GamePool) -> StepBatch:
    """Receive, and act."""
    batch = pool.recv()
    live = batch.env_ids[batch.num_last :]
    pool.send(np.zeros(len(live), np.int64), live)
    return batch


def rows(batch: StepBatch) -> list[tuple[Any, ...]]:
    """What a batch says: (kind, slot, steps of the game that the observation shows, reward, terminated)."""
    steps = np.asarray(batch.obs)[:, 1].astype(int).tolist()
    kinds = [StepKind(kind).name for kind in batch.kind]
    return list(
        zip(kinds, batch.env_ids.tolist(), steps, batch.reward.tolist(), batch.terminated.tolist(), strict=True)
    )


def test_every_player_is_a_slot_with_episodes_of_its_own() -> None:
    pool = pool_of(lambda: toy_games.Chase((1, 3)), lambda: toy_games.Chase((2, 2)))
    assert pool.num_envs == 4
    first = turn(pool)
    assert rows(first) == [("FIRST", slot, 0, 0.0, False) for slot in range(4)]
    assert rows(turn(pool)) == [
        ("LAST", 0, 1, 1.0, True),  # it died early, and waits for the next game
        ("MID", 1, 1, 2.0, False),
        ("MID", 2, 1, 1.0, False),
        ("MID", 3, 1, 2.0, False),
    ]
    assert rows(turn(pool)) == [
        ("LAST", 2, 2, 1.0, True),
        ("LAST", 3, 2, 2.0, True),
        ("MID", 1, 2, 2.0, False),
        ("FIRST", 2, 0, 0.0, False),
        ("FIRST", 3, 0, 0.0, False),
    ]
    batch = turn(pool)
    assert rows(batch)[:3] == [("LAST", 1, 3, 2.0, True), ("FIRST", 0, 0, 0.0, False), ("FIRST", 1, 0, 0.0, False)]
    assert batch.info["episode_return"][0] == 6.0 and batch.info["episode_length"][0] == 3
    assert pool.metrics()["env/games_total"] == 2


def test_actions_reach_the_player_they_are_meant_for_and_its_reward_comes_back() -> None:
    class Echo(toy_games.Chase):
        def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
            obs, _, *rest = super().step(actions)
            return (
                obs,
                {player: 10.0 * self.possible_agents.index(player) + actions[player] for player in actions},
                *rest,
            )

    pool = pool_of(*[lambda: Echo((9, 9))] * 2)
    first = pool.recv()
    pool.send(np.array([2, 0, 1, 2]), np.array([3, 0, 2, 1]))  # in any order
    batch = pool.recv()
    assert batch.env_ids.tolist() == first.env_ids.tolist() == [0, 1, 2, 3]
    assert batch.reward.tolist() == [0.0, 12.0, 1.0, 12.0]
    assert np.asarray(batch.obs)[:, 0].tolist() == [0, 1, 0, 1]


def test_nothing_of_an_opponent_is_in_the_rows_but_what_came_of_its_moves() -> None:
    opponents = Scripted((True, False))
    rewards = [(1, 0), (10, 0), (100, 0), (1000, 5)]
    pool = pool_of(lambda: toy_games.Turns(rewards), opponents=opponents)
    assert rows(turn(pool)) == [("FIRST", 0, 0, 0.0, False)]
    assert rows(turn(pool)) == [("MID", 0, 2, 11.0, False)]
    # The opponent's move ends the game, and with it our episode.
    assert rows(turn(pool)) == [("LAST", 0, 4, 1100.0, True), ("FIRST", 0, 0, 0.0, False)]
    assert opponents.ends == [(0, [1111.0, 5.0])]
    assert opponents.asked[:2] == [([1], [True]), ([1], [False])]


def test_an_opponent_that_begins_has_acted_before_our_first_row() -> None:
    opponents = Scripted((False, True))
    pool = pool_of(lambda: toy_games.Turns(((7, 7), (1, 2), (3, 4), (5, 6))), opponents=opponents)
    # What the opponent's first move gave us belongs to no action of ours.
    assert rows(turn(pool)) == [("FIRST", 1, 1, 0.0, False)]
    assert rows(turn(pool)) == [("MID", 1, 3, 6.0, False)]
    batch = turn(pool)
    assert rows(batch) == [("LAST", 1, 4, 6.0, True), ("FIRST", 1, 1, 0.0, False)]
    assert batch.info["episode_return"][0] == 12.0


def test_opponents_act_at_the_same_time_in_one_call() -> None:
    opponents = Scripted((True, False))
    pool = pool_of(*[lambda: toy_games.Chase((3, 3))] * 3, opponents=opponents)
    assert [row[:2] for row in rows(turn(pool))] == [("FIRST", 0), ("FIRST", 2), ("FIRST", 4)]
    assert opponents.asked == [([1, 3, 5], [True] * 3)]


def test_players_that_are_not_recorded_act_but_do_not_count() -> None:
    pool = pool_of(lambda: toy_games.Chase((1, 1)), opponents=Scripted((True, True), (False, True)))
    assert turn(pool).record.tolist() == [False, True]
    batch = turn(pool)
    assert batch.record.tolist() == [False, True, False, True]
    assert np.isnan(batch.info["episode_return"][0]) and batch.info["episode_return"][1] == 2.0


def test_tictactoe_rows_equal_those_of_a_naive_loop() -> None:
    """Random moves on both sides; the agent is player 0 in game 0, and the sum of its rewards is the game's result."""
    opponents = Scripted((True, False))
    pool = GamePool([lambda: UniformGame(TicTacToe(), "tictactoe")], seed=0, opponents=opponents)
    game, rng, results, expected = TicTacToe(), np.random.default_rng(0), [], []
    view = game.reset()[0]
    while len(results) < 30:
        batch = pool.recv()
        if batch.num_last:
            results.append((float(batch.reward[0]), bool(batch.terminated[0])))
        mask = batch.info["action_mask"][-1]
        np.testing.assert_array_equal(batch.obs[-1], view.obs)
        np.testing.assert_array_equal(mask, view.action_mask)
        square = int(rng.choice(np.flatnonzero(mask)))
        pool.send(np.array([square]), batch.env_ids[-1:])
        views = game.step({0: square})
        if not game.is_over:
            legal = views[1].action_mask
            assert legal is not None
            views = game.step({1: int(legal.argmax())})
        if game.is_over:
            expected.append((views[0].reward, True))
            views = game.reset()
        view = views[0]
    assert results == expected[: len(results)]
    assert {reward for reward, _ in results} == {-1.0, 1.0} or len({reward for reward, _ in results}) == 3
    assert [sum(returns) for _, returns in opponents.ends] == [0.0] * len(opponents.ends)


@pytest.mark.parametrize("fault", [np.nan, ZeroDivisionError("the dice broke")])
def test_a_game_at_fault_is_cut_and_another_begins(fault: Any) -> None:
    made: list[int] = []

    def make() -> toy_games.Chase:
        made.append(1)
        return toy_games.Chase((2, 2), fault_in=2 if len(made) == 1 else 0, fault=fault)

    opponents = Scripted((True, False))
    pool = pool_of(make, opponents=opponents, on_error="restart")
    for _ in range(3):
        turn(pool)
    batch = turn(pool)
    # Only slots of the agent are closed: nobody ever saw a row of the other.
    assert batch.closed_ids.tolist() == [0] and rows(batch) == [("FIRST", 0, 0, 0.0, False)]
    assert pool.metrics()["env/lost_episodes_total"] == 1
    assert len(opponents.ends) == 1  # the lost game has no result
    assert len(made) == (2 if isinstance(fault, Exception) else 1)


def test_a_game_whose_reset_raises_is_made_again() -> None:
    made: list[int] = []

    def make() -> toy_games.Chase:
        made.append(1)
        game = toy_games.Chase((2, 2))
        if len(made) % 2:
            game.reset = lambda seed=None: 1 / 0  # type: ignore[method-assign,assignment]
        return game

    pool = pool_of(make, on_error="restart")
    assert rows(turn(pool)) == [("FIRST", 0, 0, 0.0, False), ("FIRST", 1, 0, 0.0, False)]
    assert len(made) == 2
    with pytest.raises(ZeroDivisionError):
        pool_of(make).recv()


def test_an_exception_ends_the_run_unless_it_may_not() -> None:
    pool = pool_of(lambda: toy_games.Chase((2, 2), fault_in=1, fault=ZeroDivisionError("the dice broke")))
    turn(pool)
    with pytest.raises(ZeroDivisionError):
        pool.recv()


def test_observations_that_the_space_does_not_describe_are_named() -> None:
    class Lying(toy_games.Chase):
        def _obs(self, player: str) -> Any:
            return np.zeros(2, np.float32)

    with pytest.raises(EnvError, match=r"observations of shape \(2,\), but its space says \(3,\)"):
        pool_of(Lying).recv()


def test_sends_are_checked() -> None:
    pool = pool_of(lambda: toy_games.Chase((1, 3)))
    turn(pool)
    turn(pool)
    assert len(pool.recv().env_ids) == 1
    assert len(pool.recv().env_ids) == 0  # it waits for its action
    with pytest.raises(ValueError, match=r"came for environments \[0\], but \[1\] wait for one"):
        pool.send(np.zeros(1, np.int64), np.array([0]))
    with pytest.raises(ValueError, match=r"must have shape \(1,\)"):
        pool.send(np.zeros((1, 2), np.int64), np.array([1]))
