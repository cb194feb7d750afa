"""Make games from their ids; an error is one sentence.

    game:tictactoe                         a built-in game, see `GAMES`
    game:my_games.Tag                      a class or function of a module: a `Game`, or with PettingZoo's interface
    pettingzoo:mpe2.simple_spread_v3       a module with `parallel_env`, else `env`
    pettingzoo:classic/rps_v2              an id in PettingZoo's registry

A module of PettingZoo needs no prefix: pettingzoo.classic.rps_v2.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from surreal.base.errors import EnvError
from surreal.base.system.program import install_command
from surreal.envs.players.base import Game, UniformGame
from surreal.envs.players.pettingzoo import ParallelGame, TurnGame

GAMES = {"tictactoe": "surreal.plugins.games.tictactoe.TicTacToe"}
_PREFIXES = ("game:", "pettingzoo:")
_BARE = "pettingzoo."
#: Packages that the extra installs.
_PACKAGES = ("pettingzoo", "mpe2", "pygame")


def is_game(env_id: str) -> bool:
    """Whether an id names a game of several players rather than a gymnasium environment."""
    return env_id.startswith((*_PREFIXES, _BARE))


def check_game(env_id: str) -> None:
    """Find a game by its id without making it; raises `EnvError` if it does not exist, or a package is missing."""
    _find(env_id)


def make_game(
    env_id: str, *, kwargs: Mapping[str, Any] | None = None, player_id: bool = False, render_mode: str | None = None
) -> UniformGame:
    """Make a game; raises `EnvError` if it cannot be made, or its players cannot share a policy. With `player_id`, the
    player's number is added to observations; the render mode is "human" to watch, "rgb_array" to record.
    """
    factory, options = _find(env_id), dict(kwargs or {})
    if render_mode is not None:
        options["render_mode"] = render_mode
    try:
        made = factory(**options)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise EnvError(f"game {env_id} cannot be made with {options}: {reason}") from error
    return UniformGame(_as_game(made, env_id), env_id, player_id=player_id)


def _as_game(made: Any, env_id: str) -> Game:
    if isinstance(made, Game):
        return made
    if hasattr(made, "agent_iter"):
        if getattr(made, "metadata", {}).get("is_parallelizable"):
            from pettingzoo.utils.conversions import aec_to_parallel

            return ParallelGame(aec_to_parallel(made), env_id)
        return TurnGame(made, env_id)
    if hasattr(made, "possible_agents") and hasattr(made, "step"):
        return ParallelGame(made, env_id)
    what = f"game {env_id} gives a {type(made).__name__}, which is neither a surreal.envs.Game"
    raise EnvError(f"{what} nor has PettingZoo's interface (possible_agents, reset, step)")


def _find(env_id: str) -> Callable[..., Any]:
    path = next((env_id.removeprefix(prefix) for prefix in _PREFIXES if env_id.startswith(prefix)), env_id)
    try:
        # PettingZoo warns about imports that bypass its registry, in which games of other packages are not.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            if "/" in path:
                return _registered(path)
            found = _resolve(GAMES.get(path, path))
    except ImportError as error:
        raise _explain(env_id, path, error) from error
    if isinstance(found, ModuleType):
        found = getattr(found, "parallel_env", None) or getattr(found, "env", None)
    if not callable(found):
        raise EnvError(f"game {env_id} cannot be called; name a module with parallel_env or env, or a class")
    factory: Callable[..., Any] = found
    return factory


def _resolve(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        module, _, name = path.rpartition(".")
        # Other missing modules are errors of the module itself.
        if not module or error.name is None or not f"{path}.".startswith(f"{error.name}."):
            raise
        holder = importlib.import_module(module)
        if not hasattr(holder, name):
            raise
        return getattr(holder, name)


def _registered(path: str) -> Callable[..., Any]:
    import pettingzoo
    from pettingzoo.env_registry.exceptions import PettingZooRegistryError

    for kind in ("parallel", "aec"):
        try:
            pettingzoo.spec(kind, path)
        except PettingZooRegistryError as error:
            problem = error
        else:
            return lambda **options: pettingzoo.make(kind, path, **options)
    raise EnvError(f"PettingZoo knows no {path!r}: {problem}")


def _explain(env_id: str, path: str, error: ImportError) -> EnvError:
    missing = (error.name or "").partition(".")[0]
    if missing in _PACKAGES and importlib.util.find_spec(missing) is None:
        return EnvError(f"{env_id} needs {missing}, which is not installed; run: {install_command('pettingzoo')}")
    if env_id.startswith("game:") and "." not in path:
        near = difflib.get_close_matches(path, GAMES, n=1)
        hint = (
            f"did you mean game:{near[0]}?" if near else f"use one of {', '.join(GAMES)}, or name a class, MODULE.CLASS"
        )
        return EnvError(f"game {env_id!r} does not exist; {hint}")
    return EnvError(f"game {env_id} cannot be imported: {error}")
