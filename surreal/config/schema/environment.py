"""The `env` and `self_play` sections: the environment, and games in which a policy plays against its past."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from surreal.config.schema.fields import Section, Space

#: What the ids of games begin with, see `surreal.envs.players.make`.
GAME_PREFIXES = ("game:", "pettingzoo:", "pettingzoo.")


class WrapperConfig(Section):
    """One environment wrapper: a built-in one by `name`, or any other by `class`."""

    name: str | None = None
    """Name of a built-in wrapper, such as `reward_clip`."""

    class_path: str | None = Field(None, alias="class")
    """Import path of a wrapper class that takes the environment and `args`."""

    args: dict[str, Any] = {}
    """Keyword arguments of the wrapper."""

    training_only: bool | None = None
    """Whether evaluation leaves it out. Unset: as the named wrapper says; for a `class`, no."""

    on_client: bool = False
    """RLX only: the clients apply this wrapper, and the server does not. Needed for wrappers that act on the
    environment itself, such as `atari` and `time_limit`; these must come first in the list."""

    @model_validator(mode="after")
    def _check_one(self) -> WrapperConfig:
        if (self.name is None) == (self.class_path is None):
            raise ValueError("a wrapper has either a name or a class")
        return self


class EnvConfig(Section):
    """The environment, and how each agent runs several copies of it."""

    id: str = Field(min_length=1)
    """Gymnasium id; `module:Name-v0` imports the module first. Or a game of several players, of which each is an
    environment of the agent: `game:tictactoe`, `game:my_module.MyGame`, `pettingzoo:mpe2.simple_spread_v3`. The same in
    every process."""

    kwargs: dict[str, Any] = {}
    """Keyword arguments of `gymnasium.make`."""

    wrappers: list[WrapperConfig] = []
    """Wrappers, innermost first. With RLX, the server applies them to what clients send and receive."""

    frame_stack: int = Field(1, ge=1, le=64)
    """Number of consecutive observations that the agent sees at once, oldest first; each is still stored only once.
    Raising it shows more of the past and makes the network larger. 1: no stacking."""

    pool: Literal["local", "vector", "subproc", "envpool"] = "local"
    """`local`: all environments in the agent's process. `vector`: the environment's own vectorized version, if there is
    one; the fastest, but ALE games accept only the wrappers `atari`, `life_loss` and the reward wrappers there, and
    other environments none. `subproc`: in worker processes, for slow environments and those that crash. `envpool`: in
    C++ threads of the package EnvPool (extra `envpool`), for machines with many cores; with wrappers as for `vector`.
    Evaluation always uses gymnasium's environment."""

    on_error: Literal["end", "restart"] = "end"
    """When an environment raises an exception in `step` or `reset`: `end` ends the run with it; `restart` cuts the
    episode, makes the environment again and continues, at most ten times in a row without a whole episode in between.
    Not with `vector` and `envpool`."""

    rate_hz: float | None = Field(None, gt=0, le=1000)
    """Steps per second of environments in the real world, such as robots: an agent's actions leave at this rate,
    whatever its learner does. Experience that the replay does not take is then dropped, as with `sender.on_full: drop`.
    Evaluation does not wait. Unset: as fast as the environments are."""

    safe_action: Literal["last"] | float | int | list[Any] = "last"
    """The action taken when the agent's is late, with `rate_hz`: an action of the space, a number for all of its
    entries, or `last`: the one before, and zeros at the beginning of an episode."""

    realtime: bool = False
    """Whether agents that keep time run before other programs of their machine (Linux, `SCHED_RR` with priority 1).
    It needs root, `CAP_SYS_NICE`, or `ulimit -r 1`."""

    interventions: bool = False
    """Whether something else may replace the agent's actions: a person, a safety layer, or a script. It names the
    action that was executed in `info["executed_action"]`, or as `executed_action` of the next `update` of an RLX
    client. Experience keeps that action, and a column `is_intervention`. The wrapper `intervention` implies it."""

    num_envs: int = Field(8, ge=1, le=4096)
    """Environments per agent. Raising it makes the forward pass cheaper per env step and the experience more
    diverse. Each player of a game counts as one, so it is a multiple of the players of `id`."""

    player_id: bool = False
    """Whether each player of a game also sees which one it is, as one-hot: the observation becomes `{obs, player}`. For
    players with different roles, which share a policy."""

    num_workers: int | None = Field(None, ge=1, le=256)
    """Worker processes per agent with `subproc`, or threads with `envpool`. Unset: one per core, at most `num_envs`."""

    observation_space: Space | Literal["raw"] | None = None
    """What RLX clients send, for an environment that cannot be created here; wrappers and `frame_stack` are applied on
    top. `raw`: the agent receives states exactly as clients send them, and nothing is recorded. Unset: the space of
    `env.id`."""

    action_space: Space | None = None
    """What such an environment accepts; given together with `observation_space`."""

    @property
    def shares_rounds(self) -> bool:
        """Whether environments cannot rest for each other: players of a game, and parts of a vector environment."""
        return self.is_game or self.is_vector

    @property
    def is_vector(self) -> bool:
        """Whether environments are made together, so that wrappers do not fit around a single one."""
        return self.pool in ("vector", "envpool")

    @property
    def has_interventions(self) -> bool:
        """Whether actions may be replaced, and experience tells which ones were."""
        return self.interventions or any(wrapper.name == "intervention" for wrapper in self.wrappers)

    @property
    def is_game(self) -> bool:
        return self.id.startswith(GAME_PREFIXES)

    @model_validator(mode="after")
    def _check_spaces(self) -> EnvConfig:
        if (self.observation_space is None) != (self.action_space is None):
            raise ValueError("observation_space and action_space are given together or not at all")
        if self.observation_space == "raw" and self.frame_stack > 1:
            raise ValueError(f"frame_stack is {self.frame_stack}, but states are raw: they cannot be stacked")
        if self.observation_space == "raw" and not all(wrapper.on_client for wrapper in self.wrappers):
            raise ValueError("states are raw: they reach the agent as they came, without wrappers")
        if self.on_error == "restart" and self.is_vector:
            raise ValueError(
                f"on_error is restart, but pool is {self.pool}, whose environments cannot be made one by one"
            )
        places = [wrapper.on_client for wrapper in self.wrappers]
        if places != sorted(places, reverse=True):
            raise ValueError("wrappers that are on_client are the innermost: they come first")
        return self


class SelfPlayConfig(Section):
    """Self-play in a game of two players: the policy learns against its own past versions, which have ratings."""

    enabled: bool = False
    """Whether past versions play against the agents. Otherwise the policy plays for all players of a game."""

    newest_share: float = Field(0.5, ge=0, le=1)
    """Share of games in which the opponent is the newest version, the agent itself. Raising it learns faster from
    current play; lowering it forgets less about beating earlier versions."""

    learns_both: bool = True
    """Whether the steps of both players of such a game become experience, or only those of one. Steps of past versions
    never do."""

    sampling: Literal["pfsp", "rating", "uniform"] = "pfsp"
    """How past versions are chosen for the other games. `pfsp`: those that still win, by (1 - score)^`pfsp_exponent`.
    `rating`: those with a similar rating. `uniform`: all equally."""

    pfsp_exponent: float = Field(2.0, ge=0, le=100)
    """Exponent of `pfsp`. Raising it plays more against the versions that the policy beats least. Only with `sampling:
    pfsp`."""

    opponents_explore: bool = True
    """Whether past versions act as they did in training: they sample, or explore at their former rate. Otherwise they
    act greedily, and play the same game every time."""

    opponents_at_once: int = Field(4, ge=1, le=64)
    """Number of past versions that an agent plays against at the same time; each plays some games before another is
    chosen. Raising it mixes opponents more finely, and needs another forward pass for each."""

    versions: int = Field(10, ge=2, le=200)
    """Number of past versions that are kept. Raising it remembers more, and needs memory in Redis and in agents. The
    oldest and the newest are kept; those in between are thinned out evenly."""

    every_env_steps: int = Field(50_000, ge=1)
    """Env steps of the run after which the policy becomes another version."""

    every_updates: int | None = Field(None, ge=1)
    """Updates after which it becomes another version, if that is earlier. Unset: by env steps only."""

    rating_step: float = Field(4.0, gt=0, le=200)
    """Elo's K: largest change of a rating by one game. Raising it follows changes sooner, with more noise. The default
    is lower than for human players, because there are many games."""

    reference: str = Field("random", min_length=1)
    """Opponent in evaluation: `random`, or the import path of a function that maps observation, action mask and random
    generator to an action. It never changes, so that scores and `run.stop_at_return` are comparable."""
