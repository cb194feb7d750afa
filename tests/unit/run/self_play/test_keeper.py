"""The league of a learner: when versions are kept, what is on disk, restarts, and a Redis that forgets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from redis.exceptions import ConnectionError as RedisConnectionError

from surreal.base.checkpoint import load_checkpoint
from surreal.base.errors import CheckpointError, DivergedError
from surreal.base.pytorch import Module
from surreal.run.self_play.exchange import Games
from surreal.run.self_play.keeper import LeagueKeeper
from surreal.run.self_play.league import League


class Number(Module):
    """A model that is one number."""

    def __init__(self) -> None:
        super().__init__()
        self.number = torch.nn.Parameter(torch.zeros(1))


class Exchange:
    """What Redis would hold."""

    def __init__(self) -> None:
        self.published: dict[int, float] = {}
        self.table: Any = None
        self.games: list[Games] = []
        self.is_away = False

    def publish(self, model: Number, version: int, stop: Any = None) -> None:
        self.published[version] = model.number.item()

    def remove(self, version: int) -> None:
        del self.published[version]

    def find_missing(self, versions: Any) -> list[int]:
        self._check()
        return [version for version in versions if version not in self.published]

    def take_games(self) -> list[Games]:
        self._check()
        taken, self.games = self.games, []
        return taken

    def write_table(self, table: Any) -> None:
        self.table = json.loads(json.dumps(table))

    def _check(self) -> None:
        if self.is_away:
            raise RedisConnectionError("away")


class Run:
    """A learner whose parameters are its version."""

    def __init__(self, folder: Path, exchange: Exchange, *, size: int = 3, **options: Any) -> None:
        self.model = Number()
        self.clock = 0.0
        self.keeper = LeagueKeeper(
            exchange,  # type: ignore[arg-type]
            League(size=size),
            folder,
            metadata={"run": "r", "config": {}},
            clock=lambda: self.clock,
            **{"every_env_steps": 100, **options},
        )
        self.keeper.begin()

    def step(self, version: int, env_steps: int, updates: int = 0) -> None:
        torch.nn.init.constant_(self.model.number, version)
        self.clock += 2.0
        self.keeper.step(self.model, version=version, env_steps=env_steps, updates=updates)

    @property
    def versions(self) -> list[int]:
        return [each.version for each in self.keeper.league.versions]


def test_the_first_parameters_and_then_one_every_so_many_steps_are_kept(tmp_path: Path) -> None:
    exchange = Exchange()
    run = Run(tmp_path, exchange)
    run.step(0, 0)
    assert run.versions == []  # nothing was published yet
    for version, env_steps in ((1, 0), (2, 60), (3, 110), (4, 150), (5, 230)):
        run.step(version, env_steps)
    assert run.versions == [1, 3, 5]
    assert exchange.published == {1: 1.0, 3: 3.0, 5: 5.0}
    assert [each["version"] for each in exchange.table["versions"]] == [1, 3, 5]
    run.step(5, 1000)  # nothing was learned since
    assert run.versions == [1, 3, 5]


def test_updates_count_too_where_they_are_given(tmp_path: Path) -> None:
    run = Run(tmp_path, Exchange(), every_updates=10)
    run.step(1, 0, 0)
    run.step(2, 1, 9)
    run.step(3, 2, 10)
    assert run.versions == [1, 3]


def test_what_is_let_go_leaves_redis_and_the_disk(tmp_path: Path) -> None:
    exchange = Exchange()
    run = Run(tmp_path, exchange)
    for version in range(1, 8):
        run.step(version, 100 * version)
    assert len(run.versions) == 3 and run.versions[0] == 1 and run.versions[-1] == 7
    assert sorted(exchange.published) == run.versions
    assert sorted(int(path.stem) for path in tmp_path.glob("*.safetensors")) == run.versions
    kept = load_checkpoint(tmp_path / "0000000007.safetensors")
    assert kept.metadata["kind"] == "policy" and kept.tensors["number"].item() == 7


def test_games_move_the_ratings_and_those_against_nobody_do_not(tmp_path: Path) -> None:
    exchange = Exchange()
    run = Run(tmp_path, exchange)
    run.step(1, 0)
    exchange.games = [Games(1, 3.0, 4), Games(99, 0.0, 4)]
    run.step(1, 1)
    league = run.keeper.league
    assert league.rating > 1000 > league.versions[0].rating and league.games == 4
    assert json.loads((tmp_path / "league.json").read_text()) == exchange.table == league.to_json()
    exchange.games = [Games(1, 4.0, 4)]
    run.keeper.finish()
    assert json.loads((tmp_path / "league.json").read_text())["games"] == 8
    assert run.keeper.metrics()["self_play/games_total"] == 8


def test_a_learner_that_is_started_again_has_its_league_and_gives_redis_what_it_lost(tmp_path: Path) -> None:
    exchange = Exchange()
    run = Run(tmp_path, exchange)
    for version in (1, 2):
        run.step(version, 100 * version)
    exchange.games = [Games(1, 4.0, 4)]
    run.step(2, 201)
    (tmp_path / "0000000003.safetensors").write_bytes(b"of a learner that was killed before it counted")
    emptied = Exchange()
    again = Run(tmp_path, emptied)
    assert again.keeper.league.to_json() == run.keeper.league.to_json()
    assert not (tmp_path / "0000000003.safetensors").exists()
    again.step(9, 210)
    assert emptied.published == {1: 1.0, 2: 2.0} and again.versions == [1, 2]


def test_a_version_whose_file_is_gone_or_damaged_leaves_the_league(tmp_path: Path) -> None:
    run = Run(tmp_path, Exchange())
    for version in (1, 2, 3):
        run.step(version, 100 * version)
    (tmp_path / "0000000001.safetensors").unlink()
    (tmp_path / "0000000002.safetensors").write_bytes(b"damaged")
    again = Run(tmp_path, Exchange())
    assert again.versions == [2, 3]
    again.step(3, 301)
    assert again.versions == [3]


def test_a_damaged_league_is_no_reason_to_begin_another_in_silence(tmp_path: Path) -> None:
    (tmp_path / "league.json").write_text('{"rating": ')
    with pytest.raises(CheckpointError, match="move it away to begin a new league"):
        Run(tmp_path, Exchange())


def test_a_redis_that_is_away_is_waited_for(tmp_path: Path) -> None:
    exchange = Exchange()
    run = Run(tmp_path, exchange)
    run.step(1, 0)
    exchange.is_away, exchange.games = True, [Games(1, 1.0, 1)]
    run.step(1, 1)
    assert run.keeper.league.games == 0
    exchange.is_away = False
    run.step(1, 2)
    assert run.keeper.league.games == 1


def test_parameters_that_are_not_finite_never_become_an_opponent(tmp_path: Path) -> None:
    run = Run(tmp_path, Exchange())
    torch.nn.init.constant_(run.model.number, float("nan"))
    with pytest.raises(DivergedError):
        run.keeper.step(run.model, version=1, env_steps=0, updates=0)
    assert run.versions == []
