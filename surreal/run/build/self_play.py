"""Both ends of self-play, from a configuration: the learner's league, and the opponents of an agent."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

from surreal.agent import Agent
from surreal.config import Config
from surreal.distributed.connection.client import RedisClient
from surreal.run.build.acting import build_agent, build_model
from surreal.run.build.environments import build_spaces
from surreal.run.process.registry import plain_config
from surreal.run.self_play.exchange import LeagueExchange
from surreal.run.self_play.keeper import FOLDER_NAME, LeagueKeeper
from surreal.run.self_play.league import League
from surreal.run.self_play.opponents import Drawing, PastSelves


def build_keeper(config: Config, client: RedisClient, run_dir: Path, stop: threading.Event) -> LeagueKeeper | None:
    """Make what keeps the versions of a learner; None without self-play."""
    settings = config.self_play
    if not settings.enabled:
        return None
    return LeagueKeeper(
        LeagueExchange(client, config.broadcast.policy),
        League(size=settings.versions, rating_step=settings.rating_step),
        run_dir / FOLDER_NAME,
        every_env_steps=settings.every_env_steps,
        every_updates=settings.every_updates,
        metadata={"run": client.run, "config": plain_config(config)},
        stop=stop,
    )


def build_opponents(config: Config, client: RedisClient, *, index: int, rng: np.random.Generator) -> PastSelves | None:
    """Make what plays against agent number `index`; None without self-play."""
    settings = config.self_play
    if not settings.enabled:
        return None
    spaces = build_spaces(config)

    def make_agent() -> Agent:
        own_rng = np.random.default_rng(rng.integers(2**63))
        return build_agent(config, build_model(config, spaces), spaces, index=index, rng=own_rng)

    drawing = Drawing(
        settings.newest_share,
        settings.learns_both,
        settings.sampling,
        settings.pfsp_exponent,
        settings.opponents_explore,
        settings.opponents_at_once,
    )
    return PastSelves(LeagueExchange(client, config.broadcast.policy), make_agent, drawing, rng=rng)
