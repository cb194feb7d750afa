"""`PastSelves`: the agents' end of self-play. Past versions of the policy play against the agent in its `GamePool`.

A share of the games is between the agent and itself, with the newest parameters; in all others, one player is a past
version that is drawn for this game. Its parameters come from Redis once. Results are sent to the learner once a second.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from redis.exceptions import RedisError

from surreal.agent import Agent
from surreal.base import tree
from surreal.base.errors import CodecError, ContractError
from surreal.base.metrics import MeanDuration
from surreal.base.types import Obs
from surreal.envs.players.base import PlayerRoles
from surreal.run.self_play.exchange import Games, LeagueExchange
from surreal.run.self_play.league import League, PastVersion, Sampling

logger = logging.getLogger(__name__)

_INTERVAL_S = 1.0
#: Games after which a version that plays gives its place to another one.
_GAMES_IN_A_ROW = 16


class Drawing(NamedTuple):
    """Options of choosing the other player of a game."""

    newest_share: float = 0.5  #: of games in which it is the newest version, the agent itself
    learns_both: bool = True  #: whether both sides of such a game are experience
    sampling: Sampling = "pfsp"  #: of past versions, see `League.weights`
    exponent: float = 2.0  #: of "pfsp"
    explores: bool = True  #: whether past versions act as they did while they learned
    at_once: int = 4  #: versions that play at the same time, at most


class _Game(NamedTuple):
    version: int
    us: int  #: number of the agent's player


@dataclass(eq=False)
class PastSelves:
    """Opponents of a `GamePool` of two players; used by the acting thread."""

    exchange: LeagueExchange  #: where the league is
    make_agent: Callable[[], Agent]  #: makes an agent with its own model, for a past version
    drawing: Drawing  #: how opponents are chosen
    rng: np.random.Generator  #: draws them
    clock: Callable[[], float] = time.monotonic  #: seconds, monotonic

    def __post_init__(self) -> None:
        self.league = League()
        self._agents: dict[int, Agent] = {}  # by version
        self._missing: set[int] = set()  # what could not be loaded, until the next look at the league
        self._games: dict[int, _Game] = {}
        self._bench: list[PastVersion | None] = [None] * self.drawing.at_once  # who plays at this time
        self._played = [0] * self.drawing.at_once  # games of each
        self._results: dict[int, Games] = {}
        self._looked_s = -float("inf")
        self._past = self._own = 0
        self._duration = MeanDuration("self_play/opponents_act_ms")

    def begin(self, game: int) -> PlayerRoles:
        self._games.pop(game, None)
        us = int(self.rng.integers(2))
        ours = np.arange(2) == us
        both = np.ones(2, np.bool_)
        drawn = None if self.rng.random() < self.drawing.newest_share else self._draw()
        if drawn is None:
            self._own += 1
            return PlayerRoles(both, both if self.drawing.learns_both else ours)
        self._past += 1
        self._games[game] = _Game(drawn.version, us)
        return PlayerRoles(ours, ours)

    def end(self, game: int, returns: NDArray[np.float64]) -> None:
        """Count a game; the player with the higher return has won it."""
        played = self._games.pop(game, None)
        if played is None:
            return
        score = 0.5 + 0.5 * float(np.sign(returns[played.us] - returns[1 - played.us]))
        known = self._results.get(played.version, Games(played.version, 0.0, 0))
        self._results[played.version] = Games(played.version, known.score + score, known.games + 1)

    def act(
        self, slots: NDArray[np.int64], obs: Obs, is_first: NDArray[np.bool_], action_mask: NDArray[np.bool_] | None
    ) -> NDArray[Any]:
        """Choose actions, all of a version at once."""
        began_s = time.perf_counter()
        versions = np.array([self._games[slot // 2].version for slot in slots.tolist()])
        parts: list[NDArray[Any]] = []
        order: list[NDArray[np.int64]] = []
        for version in np.unique(versions).tolist():
            rows = np.flatnonzero(versions == version)
            explore = np.full(len(rows), self.drawing.explores)
            mask = None if action_mask is None else action_mask[rows]
            acted = self._agents[version].act_batch(tree.take(obs, rows), explore, slots[rows], is_first[rows], mask)
            parts.append(acted.actions)
            order.append(rows)
        self._duration.add(time.perf_counter() - began_s)
        actions: NDArray[Any] = np.concatenate(parts)[np.argsort(np.concatenate(order))]
        return actions

    def maintain(self) -> None:
        """Report results and look at the league, once a second."""
        if self.clock() - self._looked_s < _INTERVAL_S:
            return
        self._looked_s = self.clock()
        try:
            self._report()
            if (table := self.exchange.read_table()) is not None:
                self.league.load_json(table)
        except RedisError as error:
            logger.debug("the league cannot be read: %s", error)
        except CodecError as error:
            logger.error("the league is of no use: %s", error)
        self._missing.clear()
        known = {each.version for each in self.league.versions}
        self._bench = [each if each is not None and each.version in known else None for each in self._bench]
        needed = known | {each.version for each in self._games.values()}
        for version in self._agents.keys() - needed:
            self._agents.pop(version).close()

    def close(self) -> None:
        try:
            self._report()
        except RedisError as error:
            logger.debug("the last games do not count: %s", error)
        for agent in self._agents.values():
            agent.close()
        self._agents.clear()

    def metrics(self) -> dict[str, float]:
        """Games begun, and how many versions are loaded; from any thread."""
        return {
            "self_play/past_games_total": float(self._past),
            "self_play/own_games_total": float(self._own),
            "self_play/opponents_count": float(len(self._agents)),
            **self._duration.metrics(),
        }

    def _report(self) -> None:
        if self._results:
            self.exchange.report(self._results.values())
            self._results = {}

    def _draw(self) -> PastVersion | None:
        """Draw a past version that can play; None if there is none.

        Each one drawn plays some games: forward passes of a few versions with many rows each take less time than those
        of many with one. All play equally many, so each has its share of the games all the same.
        """
        versions, place = self.league.versions, int(self.rng.integers(len(self._bench)))
        drawn = self._bench[place]
        if drawn is None or self._played[place] >= _GAMES_IN_A_ROW:
            if not versions:
                return None
            weights = self.league.weights(self.drawing.sampling, exponent=self.drawing.exponent)
            drawn = versions[int(self.rng.choice(len(versions), p=weights))]
            self._bench[place], self._played[place] = drawn, 0
        self._played[place] += 1
        if not self._is_loaded(drawn):
            self._bench[place] = None
            return None
        return drawn

    def _is_loaded(self, wanted: PastVersion) -> bool:
        """Whether a version can play; loads it, if need be and possible."""
        version = wanted.version
        if version in self._agents:
            return True
        if version in self._missing:
            return False
        try:
            if (published := self.exchange.fetch(version)) is not None:
                agent = self.make_agent()
                tensors, header = published.decode()
                agent.model.load_tensors(tensors, version, header)
                agent.global_step = wanted.env_steps  # it explores as it did then
                self._agents[version] = agent
                return True
        except RedisError as error:
            logger.debug("version %d is not to be had: %s", version, error)
        except (CodecError, ContractError) as error:
            logger.error("version %d is not an opponent: %s", version, error)
        self._missing.add(version)
        return False
