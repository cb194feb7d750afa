"""The environment's section of a configuration, and its wrappers'."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from surreal.config.schema.fields import Section
from surreal.config.schema.spaces import Space


class WrapperConfig(Section):
    """One environment wrapper: one of ours by `name`, or any by `class`."""

    name: str | None = None
    """Name of a wrapper of `surreal.envs`, such as `reward_clip`."""

    class_path: str | None = Field(None, alias="class")
    """Import path of a wrapper class that takes the environment and `args`."""

    args: dict[str, Any] = {}
    """Keyword arguments of the wrapper."""

    training_only: bool | None = None
    """Whether evaluation goes without it; unset means what the named wrapper says of itself, else no."""

    on_client: bool = False
    """With RLX: whether clients apply it, so that the server does not. For what acts in the environment itself, such as
    `atari` and `time_limit`; the innermost ones. Elsewhere it makes no difference."""

    @model_validator(mode="after")
    def _check_one(self) -> WrapperConfig:
        if (self.name is None) == (self.class_path is None):
            raise ValueError("a wrapper has either a name or a class")
        return self


class EnvConfig(Section):
    """The environment, and how an agent runs several of it."""

    id: str = Field(min_length=1)
    """Gymnasium id, `module:Name-v0` included; every process must name the same."""

    kwargs: dict[str, Any] = {}
    """Keyword arguments of `gymnasium.make`."""

    wrappers: list[WrapperConfig] = []
    """Wrappers from the inside to the outside. An RLX server applies them to what its clients send and get."""

    frame_stack: int = Field(1, ge=1, le=64)
    """Observations that the agent sees at once, oldest first; each is stored once all the same. More looks further
    back, for a larger network. 1: no stack."""

    pool: Literal["local", "vector", "subproc"] = "local"
    """`local`: all in the agent's process; `vector`: the environment's own vectorised form, if it has one, the fastest
    (ALE's games take the wrappers `atari`, `life_loss` and those of rewards there, others none); `subproc`: in worker
    processes, for environments that are slow or crash."""

    on_error: Literal["end", "restart"] = "end"
    """When an environment raises an exception: `end` ends the run with it; `restart` cuts the episode, makes the
    environment anew and goes on, ten times in a row at most without a whole episode in between. Not of `vector`."""

    num_envs: int = Field(8, ge=1, le=4096)
    """Environments of one agent; more makes the network's calls cheaper per step, and the experience broader."""

    num_workers: int | None = Field(None, ge=1, le=256)
    """Worker processes of one agent, `subproc` only; unset: as many as there are cores, at most `num_envs`."""

    observation_space: Space | Literal["raw"] | None = None
    """What clients send, for an environment that exists only elsewhere (see `rlx`): wrappers and `frame_stack` come on
    top. Unset: as `env.id` says. `raw`: the agent gets states as clients send them, and nothing is recorded."""

    action_space: Space | None = None
    """What it can do, given together with `observation_space`."""

    @model_validator(mode="after")
    def _check_spaces(self) -> EnvConfig:
        if (self.observation_space is None) != (self.action_space is None):
            raise ValueError("observation_space and action_space are given together or not at all")
        if self.observation_space == "raw" and self.frame_stack > 1:
            raise ValueError(f"frame_stack is {self.frame_stack}, but states are raw: they cannot be stacked")
        if self.observation_space == "raw" and not all(wrapper.on_client for wrapper in self.wrappers):
            raise ValueError("states are raw: they reach the agent as they came, without wrappers")
        if self.on_error == "restart" and self.pool == "vector":
            raise ValueError("on_error is restart, but pool is vector, whose environments cannot be made one by one")
        places = [wrapper.on_client for wrapper in self.wrappers]
        if places != sorted(places, reverse=True):
            raise ValueError("wrappers that are on_client are the innermost: they come first")
        return self
