"""A league through a real Redis: what the learner keeps is what agents play with, and what they tell is counted."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from surreal.agent import Agent, PolicyAgent
from surreal.distributed import RedisClient
from surreal.envs.players.make import make_game
from surreal.envs.pools.game_pool import GamePool
from surreal.model import ActorCritic
from surreal.run.self_play.exchange import Games, LeagueExchange
from surreal.run.self_play.keeper import LeagueKeeper
from surreal.run.self_play.league import League
from surreal.run.self_play.opponents import Drawing, PastSelves


def make_model(seed: int) -> ActorCritic:
    game = make_game("game:tictactoe")
    pool = GamePool([lambda: game], seed=0)
    return ActorCritic([8], action_space=pool.action_space, obs_spec=pool.obs_spec, seed=seed)


def make_keeper(client: RedisClient, folder: Path, *, size: int = 2) -> LeagueKeeper:
    times = iter(range(0, 10**6, 10))
    keeper = LeagueKeeper(
        LeagueExchange(client, "default"),
        League(size=size),
        folder,
        every_env_steps=100,
        metadata={"run": "r", "config": {}},
        stop=threading.Event(),
        clock=lambda: float(next(times)),
    )
    keeper.begin()
    return keeper


def make_opponents(client: RedisClient) -> PastSelves:
    times = iter(range(0, 10**6, 10))

    def make_agent() -> Agent:
        return PolicyAgent(make_model(seed=99), rng=np.random.default_rng(0))

    drawing = Drawing(newest_share=0.0, sampling="uniform")
    exchange = LeagueExchange(client, "default")
    return PastSelves(exchange, make_agent, drawing, rng=np.random.default_rng(0), clock=lambda: float(next(times)))


def play(pool: GamePool, turns: int) -> None:
    """Play at random."""
    rng = np.random.default_rng(0)
    for _ in range(turns):
        batch = pool.recv()
        masks = batch.info["action_mask"][batch.num_last :]
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in masks], np.int64)
        pool.send(actions, batch.env_ids[batch.num_last :])


def test_versions_travel_and_games_are_counted(client: RedisClient, tmp_path: Path) -> None:
    keeper, model = make_keeper(client, tmp_path), make_model(seed=1)
    keeper.step(model, version=3, env_steps=0, updates=0)
    opponents = make_opponents(client)
    with GamePool([lambda: make_game("game:tictactoe")] * 4, seed=0, opponents=opponents) as pool:
        play(pool, 40)
        (agent,) = opponents._agents.values()
        assert agent.model.version == 3
        for name, tensor in agent.model.tensors().items():
            assert torch.equal(tensor, model.tensors()[name])
    opponents.close()
    keeper.step(model, version=3, env_steps=1, updates=0)
    assert 0 < keeper.league.games <= 40
    assert keeper.league.rating + keeper.league.versions[0].rating == pytest.approx(2000)
    before = keeper.league.games
    keeper.step(model, version=3, env_steps=2, updates=0)
    assert keeper.league.games == before  # each report counts once


def test_versions_that_are_let_go_leave_no_key_and_lost_ones_come_back(client: RedisClient, tmp_path: Path) -> None:
    keeper, model = make_keeper(client, tmp_path), make_model(seed=1)
    for version in (1, 2, 3):
        keeper.step(model, version=version, env_steps=100 * version, updates=0)
    assert [each.version for each in keeper.league.versions] == [1, 3]
    assert list(client.scan(f"{client.policy_keys('default.past.2').prefix}*")) == []
    exchange = LeagueExchange(client, "default")
    client.delete_run()
    assert exchange.fetch(3) is None and exchange.read_table() is None
    again = make_keeper(client, tmp_path)
    again.step(model, version=9, env_steps=310, updates=0)
    published = exchange.fetch(3)
    assert published is not None and published.version == 3
    assert [each["version"] for each in exchange.read_table()["versions"]] == [1, 3]


def test_what_is_no_report_or_no_table_counts_for_nothing(client: RedisClient) -> None:
    exchange = LeagueExchange(client, "default")
    keys = client.policy_keys("default")
    for bad in (b"", b"[", b"3", b'[["a", 1, 1]]', b"[[1, 2, 1]]", b"[[1, 0, 0]]", b"[[1, 1e400, 2]]", b"[" * 70_000):
        client.redis.xadd(keys.games, {"games": bad})
    exchange.report([Games(1, 0.5, 1)])
    assert exchange.take_games() == [Games(1, 0.5, 1)]
    assert client.redis.xlen(keys.games) == 0
    client.redis.set(keys.league, b"[" * 100_000)
    assert exchange.read_table() is None
