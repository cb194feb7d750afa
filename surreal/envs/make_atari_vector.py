"""Makes ALE's own vector environment out of the same settings as single games: arguments, wrappers, stack."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import EnvError
from surreal.envs.atari.preprocessing import fire_action, screen_shape
from surreal.envs.atari.vector import AtariVector, RewardFunction

if TYPE_CHECKING:
    from surreal.envs.wrappers.named import WrapperSpec


def make_atari_vector(
    options: Mapping[str, Any], num_envs: int, *, wrappers: Sequence[WrapperSpec], frame_stack: int
) -> AtariVector:
    """Make it.

    Args:
        options: arguments of the game, by the names of ale-py's single environment.
        num_envs: games in it.
        wrappers: those that are wanted, innermost first: `atari`, then any of `life_loss` and those of rewards.
        frame_stack: frames of an observation.

    Raises:
        EnvError: a wrapper has no vector form, `atari` is not the first one, or `fire_on_reset` has no `life_loss`.
        TypeError, ValueError: an argument is not possible.
    """
    if not wrappers or wrappers[0].name != "atari":
        raise EnvError("ALE's vector environment shows small gray frames; put the wrapper `atari` first")
    if frame_stack < 1:
        raise EnvError(f"frame_stack is {frame_stack}; it must be >= 1")
    arguments = dict(wrappers[0].args)
    fires = bool(arguments.pop("fire_on_reset", False))
    shape, preprocessing = _preprocessing(**arguments)
    cuts_lives, rewards = False, []
    for spec in wrappers[1:]:
        if spec.name == "life_loss" and not spec.args:
            cuts_lives = True
        elif spec.name in _REWARDS:
            rewards.append(_REWARDS[spec.name](**spec.args))
        else:
            raise EnvError(f"the wrapper {spec.name} does not stand around a vector environment; use the local pool")
    if fires and not cuts_lives:
        raise EnvError(
            "in ALE's vector environment, fire_on_reset needs life_loss: FIRE would replace actions that agents chose; "
            "add the wrapper life_loss, or use the local pool"
        )
    game = {name: value for name, value in options.items() if name not in ("frameskip", "obs_type")}
    make = importlib.import_module("ale_py.vector_env").AtariVectorEnv
    envs = make(
        num_envs=num_envs,
        img_height=shape[0],
        img_width=shape[1],
        stack_num=1,
        use_fire_reset=fires,
        episodic_life=False,
        life_loss_info=False,
        reward_clipping=False,
        **preprocessing,
        **game,
    )
    fire = fire_action([action.name for action in envs.ale.get_action_set()]) if fires else None
    return AtariVector(envs, frame_stack=frame_stack, cuts_lives=cuts_lives, rewards=rewards, fire=fire)


def _preprocessing(
    noop_max: int = 30, frame_skip: int = 4, screen_size: int | Sequence[int] = 84
) -> tuple[tuple[int, int], dict[str, Any]]:
    if noop_max < 0 or frame_skip < 1:
        raise EnvError(f"noop_max is {noop_max}, frame_skip is {frame_skip}; they must be >= 0 and >= 1")
    # ALE's vector environment draws from 0 .. noop_max - 1 no-ops.
    return screen_shape(screen_size), {"noop_max": noop_max + 1, "frameskip": frame_skip, "maxpool": frame_skip > 1}


def _sign() -> RewardFunction:
    return np.sign


def _clip(low: float = -1.0, high: float = 1.0) -> RewardFunction:
    if not low <= high:
        raise EnvError(f"reward_clip: low is {low}, high is {high}; low must not be larger")

    def clip(reward: NDArray[Any]) -> NDArray[Any]:
        clipped: NDArray[Any] = np.clip(reward, low, high)
        return clipped

    return clip


def _scale(scale: float) -> RewardFunction:
    def multiply(reward: NDArray[Any]) -> NDArray[Any]:
        scaled: NDArray[Any] = reward * scale
        return scaled

    return multiply


_REWARDS: Mapping[str, Any] = {"reward_sign": _sign, "reward_clip": _clip, "reward_scale": _scale}
