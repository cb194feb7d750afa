"""GamePool: games of several players in this process; each player of each game is a slot of the pool.

The agent gets rows for its own players. Opponents act inside the pool, so a row's reward includes the effect of their
moves, and a game that an opponent ends is the end of the agent's episode. A player that leaves a game early has its
LAST row then, and its next FIRST row in the next game.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.base.contracts import EnvPool
from surreal.base.errors import EnvError
from surreal.base.types import StepBatch
from surreal.envs.actions import ActionAdapter, mask_width
from surreal.envs.players.base import NoOpponents, Opponents, PlayerRoles, UniformGame, View
from surreal.envs.pools.base import (
    EpisodeCounter,
    FaultCounter,
    OnError,
    Seed,
    check_awaited,
    checked_actions,
    describe_error,
    describe_observations,
    describe_unsound_step,
    empty_batch,
    env_seeds,
)
from surreal.envs.pools.columns import PlayerColumns
from surreal.envs.pools.rows import RowJoiner

#: Makes one game.
GameFactory = Callable[[], UniformGame]


class _Match:
    """One game and its players."""

    def __init__(self, number: int, make: GameFactory, seed: int, game: UniformGame | None) -> None:
        self.number = number
        self.make = make
        self.game = make() if game is None else game
        self.first_seed = seed
        self.seed: int | None = seed  # of the next reset; None continues the random numbers
        self.faults = FaultCounter()
        self.num_remakes = 0
        self.roles: PlayerRoles
        self.returns = np.zeros(self.game.num_players)
        self.to_act: set[int] = set()  # players that got a view
        self.actions: dict[int, Any] = {}


class GamePool(EnvPool):
    """Games that step in the caller's thread, in `recv`, once all rows that need an action have one.

    Args:
        games: functions that make one game each, all of the same kind.
        seed: entropy from which every game gets its own seed.
        opponents: control the players that the agent does not control; None: the agent controls all.
        on_error: "end" raises the exceptions of games; "restart" cuts the episodes and makes the game again.
        first: the first of the games, if it exists already.

    Raises:
        EnvError: a game cannot be made, or observations are of a kind that has no arrays.
    """

    def __init__(
        self,
        games: Sequence[GameFactory],
        *,
        seed: Seed = None,
        opponents: Opponents | None = None,
        on_error: OnError = "end",
        first: UniformGame | None = None,
    ) -> None:
        if not games:
            raise ValueError("a pool needs at least one game")
        seeds = env_seeds(seed, len(games))
        made = [first, *[None] * (len(games) - 1)]
        self._matches = [_Match(number, *each) for number, each in enumerate(zip(games, seeds, made, strict=True))]
        game = self._matches[0].game
        self._players = game.num_players
        self.num_envs = len(games) * self._players
        self.observation_space = game.observation_space
        self.obs_spec = describe_observations(game.observation_space)
        self._adapter = ActionAdapter(game.action_space)
        self.action_space = self._adapter.space
        self._opponents = NoOpponents(self._players) if opponents is None else opponents
        self._on_error = on_error
        self._joiner = RowJoiner(self.obs_spec, self.num_envs, explore=True, record=True)
        self._columns = PlayerColumns(self.obs_spec, self.num_envs, mask_width(self.action_space))
        self._empty = empty_batch(self.obs_spec)
        self._is_awaited = np.zeros(self.num_envs, np.bool_)
        self._live: list[int] = []  # slots with a row in this `recv`
        self._ended: list[int] = []
        self._closed: list[int] = []
        self._is_started = False
        self._steps = self._lost = self._games = 0
        self._episodes = EpisodeCounter()

    def recv(self, timeout_s: float = 1.0) -> StepBatch:
        """Step the games; returns an empty batch at once while rows of the last batch still need an action."""
        if self._is_awaited.any():
            return self._empty
        self._live, self._ended, self._closed = [], [], []
        for match in self._matches:
            if self._is_started:
                self._step(match)
            else:
                self._begin(match)
        self._is_started = True
        while waiting := self._let_opponents_act():
            for match in waiting:
                self._step(match)
        self._opponents.maintain()
        return self._batch()

    def send(self, actions: NDArray[Any], env_ids: NDArray[np.int64]) -> None:
        """Pass actions, which are copied."""
        actions, ids = checked_actions(self._adapter, actions, env_ids)
        check_awaited(ids, self._is_awaited)
        self._take(ids, np.array(actions))
        self._is_awaited[ids] = False
        self._steps += len(ids)

    def metrics(self) -> dict[str, float]:
        """Return env steps, games, episodes of all players, and the metrics of the opponents."""
        counts = {
            "env/steps_total": float(self._steps),
            "env/games_total": float(self._games),
            "env/lost_episodes_total": float(self._lost),
        }
        return {**counts, **self._episodes.metrics(), **self._opponents.metrics()}

    def close(self) -> None:
        for match in self._matches:
            match.game.close()

    def _begin(self, match: _Match, *, is_broken: bool = False) -> None:
        match.roles = self._opponents.begin(match.number)
        match.returns[:] = 0.0
        self._columns.is_recorded[self._slots(match)] = match.roles.is_recorded
        views = self._reset(match, is_broken=is_broken)
        match.seed = None
        if problem := _find_unsound(views):
            raise EnvError(f"{match.game.name} (game {match.number}) begins with an impossible number: {problem}")
        self._show(match, views)

    def _step(self, match: _Match) -> None:
        """Apply the actions of all players that act; the next game follows one that is over."""
        actions = dict(sorted(match.actions.items()))  # in a fixed order
        match.actions, match.to_act = {}, set()
        try:
            views = match.game.step(actions)
        except Exception as error:
            if self._on_error == "end":
                raise
            self._lose(match, f"raised {describe_error(error)}", error)
            return
        if problem := _find_unsound(views):
            self._lose(match, f"shows {problem}")
            return
        self._show(match, views)
        if match.game.is_over or not match.to_act:
            self._close_open(match)
            match.faults.clear()
            self._games += 1
            self._opponents.end(match.number, match.returns)
            self._begin(match)

    def _show(self, match: _Match, views: Mapping[int, View]) -> None:
        for player, view in views.items():
            slot = match.number * self._players + player
            match.returns[player] += view.reward
            is_agent = bool(match.roles.is_agent[player])
            if view.has_ended:
                # A player that never acted in a game has no episode in it.
                if is_agent and self._columns.is_open[slot]:
                    self._columns.end(slot, view)
                    self._ended.append(slot)
                continue
            self._columns.show(slot, view)
            match.to_act.add(player)
            if is_agent:
                self._live.append(slot)
                self._is_awaited[slot] = True

    def _lose(self, match: _Match, fault: str, cause: Exception | None = None) -> None:
        """Cut the episodes of a game after a fault, and begin another."""
        match.faults.add(f"{match.game.name} (game {match.number}) {fault}", cause)
        self._lost += self._close_open(match)
        self._begin(match, is_broken=cause is not None)

    def _reset(self, match: _Match, *, is_broken: bool) -> Mapping[int, View]:
        """Reset a game; one that is broken, or raises here, is made again and gets its next seed."""
        while True:
            try:
                if is_broken:
                    with suppress(Exception):
                        match.game.close()
                    match.game = match.make()
                    match.num_remakes += 1
                    (match.seed,) = env_seeds(match.first_seed, 1, incarnation=match.num_remakes)
                return match.game.reset(match.seed)
            except Exception as error:
                if self._on_error == "end":
                    raise
                match.faults.add(f"{match.game.name} (game {match.number}) raised {describe_error(error)}", error)
                is_broken = True

    def _close_open(self, match: _Match) -> int:
        """Cut the episodes in progress of a game; returns how many there were."""
        slots = self._slots(match)
        still_open = slots[self._columns.is_open[slots] & match.roles.is_agent]
        self._closed += still_open.tolist()
        self._columns.is_open[slots] = False
        return len(still_open)

    def _let_opponents_act(self) -> list[_Match]:
        """Choose actions for all opponents that act, and return the games that need no other action."""
        theirs = [
            (match, player)
            for match in self._matches
            for player in sorted(match.to_act - match.actions.keys())
            if not match.roles.is_agent[player]
        ]
        if theirs:
            slots = np.array([match.number * self._players + player for match, player in theirs])
            columns = self._columns
            obs = self.obs_spec.unflatten([leaf.take(slots, 0) for leaf in columns.obs])
            mask = columns.mask.take(slots, 0) if columns.has_mask else None
            self._take(slots, self._opponents.act(slots, obs, ~columns.is_open[slots], mask))
            columns.is_open[slots] = True
        return [match for match in self._matches if match.to_act == match.actions.keys()]

    def _take(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Store the actions of players for the next steps of their games."""
        for slot, action in zip(slots.tolist(), self._adapter.rows(actions), strict=True):
            number, player = divmod(slot, self._players)
            self._matches[number].actions[player] = action

    def _slots(self, match: _Match) -> NDArray[np.int64]:
        return np.arange(match.number * self._players, (match.number + 1) * self._players)

    def _batch(self) -> StepBatch:
        columns, live, ended = self._columns, np.array(sorted(self._live), np.int64), np.array(self._ended, np.int64)
        rows, final = columns.live_rows(live), columns.last_rows(ended)
        batch = self._joiner.join(final, rows, np.array(self._closed, np.int64))
        if len(ended):
            self._episodes.add(final.episode_return, final.episode_length)
        is_recorded = np.concatenate((columns.was_recorded[ended], columns.is_recorded[live]))
        return batch if is_recorded.all() else batch._replace(record=is_recorded)


def _find_unsound(views: Mapping[int, View]) -> str:
    """Name the first impossible number in these views; "" if there is none."""
    for player, view in views.items():
        if problem := describe_unsound_step(view.obs, view.reward):
            return f"player {player}: {problem}"
    return ""
