"""The `self_play` section: a policy that learns against its own past."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from surreal.config.schema.fields import Section


class SelfPlayConfig(Section):
    """Self-play in a game of two players: the policy learns against past versions of itself, which have ratings."""

    enabled: bool = False
    """Whether past versions play against the agents. Otherwise the policy plays for all players of a game."""

    newest_share: float = Field(0.5, ge=0, le=1)
    """Share of games in which the other player is the newest version, the agent itself. Raising it learns faster from
    what is played now; lowering it forgets less of how earlier versions are beaten."""

    learns_both: bool = True
    """Whether in such games the steps of both players are experience, and not those of one. What past versions do never
    is."""

    sampling: Literal["pfsp", "rating", "uniform"] = "pfsp"
    """How past versions are drawn for the other games. `pfsp`: those that still win, by (1 - score)^`pfsp_exponent`.
    `rating`: those of about the same rating. `uniform`: all alike."""

    pfsp_exponent: float = Field(2.0, ge=0, le=100)
    """Raising it plays more against the versions that the policy is worst at. Only with `sampling: pfsp`."""

    opponents_explore: bool = True
    """Whether past versions act as they did while they learned: they sample, or explore at the rate of their time.
    Otherwise they take the best action known, and play the same game again and again."""

    opponents_at_once: int = Field(4, ge=1, le=64)
    """Past versions that an agent has at the board at the same time; each plays some games before another is drawn.
    Raising it mixes opponents more finely, and takes a forward pass more for each."""

    versions: int = Field(10, ge=2, le=200)
    """Past versions that are kept. Raising it is a longer memory, and takes memory in Redis and in agents. The oldest
    and the newest stay, those between are thinned out evenly."""

    every_env_steps: int = Field(50_000, ge=1)
    """Env steps of the run after which the policy is kept as another version."""

    every_updates: int | None = Field(None, ge=1)
    """Updates after which it is, if that is earlier. Unset: by env steps only."""

    rating_step: float = Field(4.0, gt=0, le=200)
    """Elo's K: points that a game moves ratings by, at most. Raising it follows changes sooner, with more noise. Lower
    than among people, for games are many."""

    reference: str = Field("random", min_length=1)
    """Who plays the other side in evaluation: `random`, or the import path of a function of observation, action mask
    and random generator that gives an action. It never changes, so that scores, and `run.stop_at_return`, have a
    meaning."""
