"""Find the code outside of Surreal that a configuration imports, and refuse it if a stranger may have written that.

Called before anything of a policy's file, or of a run that is watched, is imported.
"""

from __future__ import annotations

from collections.abc import Iterator

from surreal.base.errors import ConfigError
from surreal.config import Config
from surreal.config.schema.fields import OwnExploration
from surreal.envs.players.make import GAMES

#: Registered environments that make another one, of any module, by their arguments.
_BRIDGES = ("GymV21Environment", "GymV26Environment")


def imports_of(config: Config) -> Iterator[tuple[str, str]]:
    """Return each setting that names code outside of Surreal and of what gymnasium has registered, and its value."""
    for name in ("model", "agent"):
        path = getattr(config, name).class_path
        if not path.startswith(f"surreal.{name}."):
            yield f"{name}.class", path
    if (session := config.agent.args.get("session")) is not None:
        yield "agent.args.session", str(session)
    if isinstance(config.agent.exploration, OwnExploration):
        yield "agent.exploration", config.agent.exploration.class_path
    for key, env_id in (("env.id", config.env.id), ("eval.env_id", config.eval.env_id)):
        if env_id is not None and not _is_registered(env_id):
            yield key, env_id
    for number, wrapper in enumerate(config.env.wrappers):
        name = wrapper.class_path or wrapper.name or ""
        if wrapper.class_path is not None or "." in name or ":" in name:
            yield f"env.wrappers.{number}", name
    if config.self_play.reference != "random":
        yield "self_play.reference", config.self_play.reference


def trusted_config(config: Config, what: str, *, trust: bool) -> Config:
    """Return the configuration, without its `python_path` unless the user trusts it."""
    if trust:
        return config
    if named := [f"{value} ({key})" for key, value in imports_of(config)]:
        raise ConfigError(
            f"{what} would import {', '.join(named)}: this runs code that its author chose; if you trust it, "
            "add --trust (in Python: trust=True)",
            key="--trust",
        )
    return config.model_copy(update={"python_path": []})


def _is_registered(env_id: str) -> bool:
    """Whether it is an id of gymnasium's, or a game of Surreal's."""
    if env_id.startswith("game:"):
        return env_id.removeprefix("game:") in GAMES
    return ":" not in env_id and not env_id.startswith(("pettingzoo.", *_BRIDGES))
