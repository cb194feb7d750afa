"""`GamePool`: games of several players in this process, as a pool in which each player of each game is a slot.

Rows come for the players that the agent plays for. Opponents, if there are any, act inside the pool, so that a row's
reward holds what came of their moves as well; a game that an opponent ends, ends the agent's episode. A player that
dies early has its LAST row then, and its next FIRST row in the next game.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.base import tree
from surreal.base.errors import EnvError
from surreal.base.types import StepBatch
from surreal.base.values import describe_unsound
from surreal.envs.actions import ActionAdapter, mask_width
from surreal.envs.players.base import View
from surreal.envs.players.opponents import NoOpponents, Opponents, Seating
from surreal.envs.players.uniform import UniformGame
from surreal.envs.pools.base import EnvPool, EpisodeCounter, Seed, describe_observations, empty_batch, env_seeds
from surreal.envs.pools.mending import Mercy, OnError, describe_error
from surreal.envs.pools.rows import LastRows, LiveRows, RowJoiner
from surreal.envs.pools.seats import Seats

#: Makes one game.
GameFactory = Callable[[], UniformGame]


class _Table:
    """One game, and who plays in it."""

    def __init__(self, number: int, make: GameFactory, seed: int, game: UniformGame | None) -> None:
        self.number = number
        self.make = make
        self.game = make() if game is None else game
        self.seed: int | None = seed  # of the first game; those after it go on
        self.mercy = Mercy()
        self.seating: Seating
        self.returns = np.zeros(self.game.num_players)
        self.to_act: set[int] = set()  # players that have been shown something
        self.actions: dict[int, Any] = {}


class GamePool(EnvPool):
    """Games that are stepped in the caller's thread, in `recv`, once all rows that want an action have one.

    Args:
        games: functions that make one game each, all of the same kind.
        seed: entropy from which every game gets a seed of its own.
        opponents: play for the players that the agent does not play for; None: the agent plays for all.
        on_error: "end" raises what a game raises; "restart" cuts the episodes in it and makes it anew.
        first: the first of the games, if it was made already.

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
        self._tables = [_Table(number, *each) for number, each in enumerate(zip(games, seeds, made, strict=True))]
        game = self._tables[0].game
        self._players = game.num_players
        self.num_envs = len(games) * self._players
        self.observation_space = game.observation_space
        self.obs_spec = describe_observations(game.observation_space)
        self._adapter = ActionAdapter(game.action_space)
        self.action_space = self._adapter.space
        self._opponents = NoOpponents(self._players) if opponents is None else opponents
        self._on_error = on_error
        self._joiner = RowJoiner(self.obs_spec, self.num_envs, explore=True, record=True)
        self._seats = Seats(self.obs_spec, self.num_envs, mask_width(self.action_space))
        self._empty = empty_batch(self.obs_spec)
        self._is_awaited = np.zeros(self.num_envs, np.bool_)
        self._live: list[int] = []  # slots that are shown in this `recv`; likewise:
        self._ended: list[int] = []
        self._closed: list[int] = []
        self._is_started = False
        self._steps = self._lost = self._games = 0
        self._episodes = EpisodeCounter()

    def recv(self, timeout_s: float = 1.0) -> StepBatch:
        """Play on; empty, at once, while rows of the last batch still want an action."""
        if self._is_awaited.any():
            return self._empty
        self._live, self._ended, self._closed = [], [], []
        for table in self._tables:
            if self._is_started:
                self._step(table)
            else:
                self._begin(table)
        self._is_started = True
        while waiting := self._let_opponents_act():
            for table in waiting:
                self._step(table)
        self._opponents.maintain()
        return self._batch()

    def send(self, actions: NDArray[Any], env_ids: NDArray[np.int64]) -> None:
        """Hand over actions; a copy is kept."""
        actions, ids = np.asarray(actions, self._adapter.dtype), np.asarray(env_ids, np.int64)
        if actions.shape != (len(ids), *self._adapter.shape):
            wanted = (len(ids), *self._adapter.shape)
            raise ValueError(f"actions of {len(ids)} rows must have shape {wanted}, got {actions.shape}")
        inside = ids[(ids >= 0) & (ids < self.num_envs)]
        if len(inside) != len(ids) or len(np.unique(ids)) != len(ids) or not self._is_awaited[ids].all():
            waiting = np.flatnonzero(self._is_awaited).tolist()
            raise ValueError(f"actions came for environments {ids.tolist()}, but {waiting} wait for one")
        self._take(ids, np.array(actions))
        self._is_awaited[ids] = False
        self._steps += len(ids)

    def metrics(self) -> dict[str, float]:
        """Return env steps, games, episodes of all players, and what the opponents tell."""
        counts = {
            "env/steps_total": float(self._steps),
            "env/games_total": float(self._games),
            "env/lost_episodes_total": float(self._lost),
        }
        return {**counts, **self._episodes.metrics(), **self._opponents.metrics()}

    def close(self) -> None:
        """Close the games; may be called twice."""
        for table in self._tables:
            table.game.close()

    # -- a game's turn -------------------------------------------------------------------------------------------------

    def _begin(self, table: _Table, *, is_broken: bool = False) -> None:
        """Begin the next game at a table; its game is made again if it is broken."""
        table.seating = self._opponents.begin(table.number)
        table.returns[:] = 0.0
        self._seats.is_recorded[self._slots(table)] = table.seating.is_recorded
        views = self._reset(table, is_broken=is_broken)
        table.seed = None
        if problem := _find_unsound(views):
            raise EnvError(f"{table.game.name} (game {table.number}) begins with an impossible number: {problem}")
        self._show(table, views)

    def _step(self, table: _Table) -> None:
        """Apply the actions of all who were to act; a game that is over is followed by the next one."""
        actions = dict(sorted(table.actions.items()))  # in one order, whoever was asked first
        table.actions, table.to_act = {}, set()
        try:
            views = table.game.step(actions)
        except Exception as error:
            if self._on_error == "end":
                raise
            self._lose(table, f"raised {describe_error(error)}", error)
            return
        if problem := _find_unsound(views):
            self._lose(table, f"shows {problem}")
            return
        self._show(table, views)
        if table.game.is_over or not table.to_act:
            self._finish(table)

    def _show(self, table: _Table, views: Mapping[int, View]) -> None:
        """Write down what players are shown."""
        for player, view in views.items():
            slot = table.number * self._players + player
            table.returns[player] += view.reward
            is_agent = bool(table.seating.is_agent[player])
            if view.has_ended:
                # Who never acted in a game has no episode of it.
                if is_agent and self._seats.is_open[slot]:
                    self._seats.end(slot, view)
                    self._ended.append(slot)
                continue
            self._seats.show(slot, view)
            table.to_act.add(player)
            if is_agent:
                self._live.append(slot)
                self._is_awaited[slot] = True

    def _finish(self, table: _Table) -> None:
        """Count a game that is over, and begin the next one."""
        self._close_open(table)
        table.mercy.refill()
        self._games += 1
        self._opponents.end(table.number, table.returns)
        self._begin(table)

    def _lose(self, table: _Table, fault: str, cause: Exception | None = None) -> None:
        """Cut the episodes of a game at fault, if that is forgiven, and begin another.

        Raises:
            EnvError: it was so too often.
        """
        table.mercy.ask(f"{table.game.name} (game {table.number}) {fault}", cause)
        self._lost += self._close_open(table)
        self._begin(table, is_broken=cause is not None)

    def _reset(self, table: _Table, *, is_broken: bool) -> Mapping[int, View]:
        """Reset a game; make it again first if it is broken, as one is that raises here and may be forgiven."""
        while True:
            try:
                if is_broken:
                    with suppress(Exception):
                        table.game.close()
                    table.game = table.make()
                return table.game.reset(table.seed)
            except Exception as error:
                if self._on_error == "end":
                    raise
                table.mercy.ask(f"{table.game.name} (game {table.number}) raised {describe_error(error)}", error)
                is_broken = True

    def _close_open(self, table: _Table) -> int:
        """Cut the episodes of a table that are under way; returns how many there were."""
        slots = self._slots(table)
        still_open = slots[self._seats.is_open[slots] & table.seating.is_agent]
        self._closed += still_open.tolist()
        self._seats.forget(slots)
        return len(still_open)

    def _let_opponents_act(self) -> list[_Table]:
        """Have all opponents that are to act do so at once; returns the tables that wait for nobody then."""
        theirs = [
            (table, player)
            for table in self._tables
            for player in sorted(table.to_act - table.actions.keys())
            if not table.seating.is_agent[player]
        ]
        if theirs:
            slots = np.array([table.number * self._players + player for table, player in theirs])
            seats = self._seats
            obs = self.obs_spec.unflatten([leaf.take(slots, 0) for leaf in seats.obs])
            mask = seats.mask.take(slots, 0) if seats.has_mask else None
            self._take(slots, self._opponents.act(slots, obs, ~seats.is_open[slots], mask))
            seats.is_open[slots] = True
        return [table for table in self._tables if table.to_act == table.actions.keys()]

    def _take(self, slots: NDArray[np.int64], actions: NDArray[Any]) -> None:
        """Note actions of players, for the games' next steps."""
        for slot, action in zip(slots.tolist(), self._adapter.rows(actions), strict=True):
            table, player = divmod(slot, self._players)
            self._tables[table].actions[player] = action

    def _slots(self, table: _Table) -> NDArray[np.int64]:
        return np.arange(table.number * self._players, (table.number + 1) * self._players)

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _batch(self) -> StepBatch:
        seats, live, ended = self._seats, np.array(sorted(self._live), np.int64), np.array(self._ended, np.int64)
        is_first = ~seats.is_open[live]
        seats.begin(live[is_first])
        rows = LiveRows(
            live,
            [leaf.take(live, 0) for leaf in seats.obs],
            seats.reward[live],
            np.flatnonzero(is_first),
            seats.mask.take(live, 0) if seats.has_mask else None,
        )
        final: LastRows = seats.last_rows(ended)
        batch = self._joiner.join(final, rows, np.array(self._closed, np.int64))
        if len(ended):
            self._episodes.add(final.episode_return, final.episode_length)
        is_recorded = np.concatenate((seats.was_recorded[ended], seats.is_recorded[live]))
        return batch if is_recorded.all() else batch._replace(record=is_recorded)


def _find_unsound(views: Mapping[int, View]) -> str:
    """Name the first impossible number in these views; "" if there is none."""
    for player, view in views.items():
        leaves = {f"observation {path}".rstrip(): np.asarray(leaf) for path, leaf in tree.with_paths(view.obs)}
        if problem := describe_unsound({"reward": np.asarray(view.reward), **leaves}):
            return f"player {player}: {problem}"
    return ""
