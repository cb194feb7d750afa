"""Past versions at the board: who is drawn, whose parameters act, what is counted and told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from redis.exceptions import ConnectionError as RedisConnectionError
from torch import Tensor

from surreal.agent import Agent
from surreal.base.pytorch import Module
from surreal.base.types import Obs
from surreal.distributed.parameters.published import Published, encode_parameters
from surreal.run.self_play.exchange import Games
from surreal.run.self_play.league import League
from surreal.run.self_play.opponents import Drawing, PastSelves

ONE, TWO = np.array([1.0, -1.0]), np.array([-1.0, 1.0])


class Number(Module):
    """A model that is one number."""

    def __init__(self) -> None:
        super().__init__()
        self.number = torch.nn.Parameter(torch.zeros(1))

    def forward(self, obs: Tensor) -> Tensor:
        return self.number.expand(len(obs))


class Saying(Agent):
    """Acts by saying its model's number."""

    closed = 0

    def _act(self, obs: Obs, explore: NDArray[np.bool_]) -> Any:  # type: ignore[override]
        return self.model(obs).long().numpy() + 100 * explore

    def close(self) -> None:
        type(self).closed += 1


class Exchange:
    """A league without Redis: version V is the number V."""

    def __init__(self, *versions: int) -> None:
        self.league = League(size=50)
        for version in versions:
            self.league.add(version, env_steps=10 * version, updates=0)
        self.reports: list[list[Games]] = []
        self.fetched: list[int] = []
        self.lost: set[int] = set()
        self.is_away = False

    def read_table(self) -> Any:
        self._check()
        return self.league.to_json()

    def report(self, games: Any) -> None:
        self._check()
        self.reports.append(list(games))

    def fetch(self, version: int) -> Published | None:
        self._check()
        self.fetched.append(version)
        blob = encode_parameters({"number": torch.tensor([float(version)])})
        return None if version in self.lost else Published(version, "epoch", "", (blob,))

    def _check(self) -> None:
        if self.is_away:
            raise RedisConnectionError("away")


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


@pytest.fixture
def make(clock: list[float]) -> Callable[..., PastSelves]:
    def build(exchange: Exchange, **drawing: Any) -> PastSelves:
        drawing = {"newest_share": 0.0, "sampling": "uniform", "at_once": 6, **drawing}
        rng = np.random.default_rng(0)
        return PastSelves(exchange, lambda: Saying(Number()), Drawing(**drawing), rng=rng, clock=lambda: clock[0])  # type: ignore[arg-type]

    return build


def begin_all(opponents: PastSelves, games: int) -> Any:
    return [opponents.begin(game) for game in range(games)]


def test_without_a_league_the_agent_plays_itself(make: Callable[..., PastSelves]) -> None:
    opponents = make(Exchange())
    opponents.maintain()
    assert all(seating.is_agent.all() and seating.is_recorded.all() for seating in begin_all(opponents, 5))
    opponents.end(0, ONE)
    assert opponents.metrics()["self_play/own_games_total"] == 5


@pytest.mark.parametrize("learns_both", [True, False])
def test_the_share_of_games_with_itself_and_what_of_them_is_experience(
    make: Callable[..., PastSelves], learns_both: bool
) -> None:
    opponents = make(Exchange(1, 2), newest_share=0.7, learns_both=learns_both)
    opponents.maintain()
    seatings = begin_all(opponents, 2000)
    own = [seating for seating in seatings if seating.is_agent.all()]
    assert len(own) / 2000 == pytest.approx(0.7, abs=0.04)  # four standard errors
    assert {int(seating.is_recorded.sum()) for seating in own} == {2 if learns_both else 1}
    past = [seating for seating in seatings if not seating.is_agent.all()]
    assert all((seating.is_agent == seating.is_recorded).all() for seating in past)
    assert np.mean([seating.is_agent[0] for seating in past]) == pytest.approx(0.5, abs=0.09)


def test_each_version_acts_with_its_own_parameters_in_the_games_it_was_drawn_for(
    make: Callable[..., PastSelves],
) -> None:
    exchange = Exchange(3, 5, 8)
    opponents = make(exchange, explores=False)
    opponents.maintain()
    seatings = begin_all(opponents, 30)
    assert sorted(exchange.fetched) == [3, 5, 8]  # once each
    slots = np.array([2 * game + int(np.argmin(seating.is_agent)) for game, seating in enumerate(seatings)])
    obs, first = np.zeros((30, 1), np.float32), np.ones(30, np.bool_)
    actions = opponents.act(slots, obs, first, None)
    assert set(actions.tolist()) == {3, 5, 8}
    # The same in any order of the rows.
    order = np.random.default_rng(1).permutation(30)
    np.testing.assert_array_equal(opponents.act(slots[order], obs, first, None), actions[order])
    exploring = make(exchange)
    exploring.maintain()
    begin_all(exploring, 1)
    assert exploring.act(np.array([0]), obs[:1], first[:1], None)[0] > 100


def test_few_versions_play_at_a_time_and_each_has_its_share_of_the_games(make: Callable[..., PastSelves]) -> None:
    opponents = make(Exchange(*range(1, 21)), at_once=2)
    opponents.maintain()
    for game in range(8):
        opponents.begin(game)
    assert len(opponents._agents) <= 2
    counts = dict.fromkeys(range(1, 21), 0)
    for _ in range(16 * 400):
        opponents.begin(0)
        counts[opponents._games[0].version] += 1
    # Each is drawn for 16 games in a row: 20 of 400 draws, whose deviation is 4.4.
    assert all(4 <= count / 16 <= 40 for count in counts.values())


def test_results_are_counted_from_the_agents_side_and_told_once_a_second(
    make: Callable[..., PastSelves], clock: list[float]
) -> None:
    exchange = Exchange(4)
    opponents = make(exchange)
    opponents.maintain()
    for result in (ONE, ONE, TWO, np.zeros(2)):  # won twice, lost, and a draw
        seating = opponents.begin(0)
        opponents.end(0, result if seating.is_agent[0] else result[::-1])
    opponents.begin(0)
    opponents.begin(0)  # the game before was lost, and has no result
    opponents.maintain()
    assert exchange.reports == []
    clock[0] = 1.5
    opponents.maintain()
    assert exchange.reports == [[Games(4, 2.5, 4)]]
    clock[0] = 3.0
    opponents.maintain()
    assert len(exchange.reports) == 1


def test_a_version_that_is_gone_is_replaced_by_the_agent_itself_and_asked_for_once(
    make: Callable[..., PastSelves], clock: list[float]
) -> None:
    exchange = Exchange(4)
    exchange.lost.add(4)
    opponents = make(exchange)
    opponents.maintain()
    assert all(seating.is_agent.all() for seating in begin_all(opponents, 10))
    assert exchange.fetched == [4]
    exchange.lost.clear()
    clock[0] = 2.0
    opponents.maintain()
    assert not opponents.begin(0).is_agent.all()


def test_results_wait_for_a_redis_that_is_away(make: Callable[..., PastSelves], clock: list[float]) -> None:
    exchange = Exchange(4)
    opponents = make(exchange)
    opponents.maintain()
    opponents.begin(0)
    opponents.end(0, np.zeros(2))
    exchange.is_away, clock[0] = True, 2.0
    opponents.maintain()
    exchange.is_away = False
    opponents.begin(0)
    opponents.end(0, np.zeros(2))
    opponents.close()
    assert exchange.reports == [[Games(4, 1.0, 2)]]


def test_versions_that_left_the_league_are_let_go_when_their_games_are_over(
    make: Callable[..., PastSelves], clock: list[float]
) -> None:
    exchange = Exchange(4)
    opponents = make(exchange)
    opponents.maintain()
    opponents.begin(0)
    exchange.league = Exchange(6).league
    clock[0], before = 2.0, Saying.closed
    opponents.maintain()
    assert opponents.metrics()["self_play/opponents_count"] == 1  # it plays on
    opponents.begin(0)
    clock[0] = 4.0
    opponents.maintain()
    assert list(opponents._agents) == [6]
    assert Saying.closed == before + 1
