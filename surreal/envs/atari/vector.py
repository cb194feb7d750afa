"""ALE's vector environment with exactly the behavior of the wrappers around single games, and its constructor.

ale-py's training options are off, and `AtariVector` does the same for all games at once: ale-py's `episodic_life`
starts a new game whenever a life is lost, its `life_loss_info` steps a row that needs no action, its reward clipping
hides the score, and its stacks continue over a lost life.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from surreal.base.errors import EnvError
from surreal.base.ranges import NonNegativeInt, PositiveInt, checked
from surreal.envs.atari.preprocessing import fire_action, screen_shape

_NOOP = 0

#: Changes the rewards [N] of a step.
RewardFunction = Callable[[NDArray[Any]], NDArray[Any]]


class AtariVector(VectorEnv[NDArray[np.uint8], NDArray[np.int64], Any]):
    """Stacks frames, cuts episodes at lost lives, changes rewards, and counts raw scores, over `AtariVectorEnv`.

    An environment whose game or life ended ignores its action at the next step, as in gymnasium's mode NEXT_STEP: a new
    game begins then, or the old one continues with a no-op or FIRE.

    Args:
        envs: the vector environment in mode NEXT_STEP, with raw rewards and observations of one gray frame each,
            [N, 1, height, width].
        frame_stack: frames of an observation, >= 1; 1 gives [height, width].
        cuts_lives: whether a lost life ends an episode.
        rewards: functions that change the training rewards, in this order.
        fire: action between two lives, which replaces an ignored one; None: a no-op. ale-py presses FIRE when a game
            begins.
    """

    def __init__(
        self,
        envs: VectorEnv[Any, Any, Any],
        *,
        frame_stack: int = 1,
        cuts_lives: bool = False,
        rewards: Sequence[RewardFunction] = (),
        fire: int | None = None,
    ) -> None:
        self._envs = envs
        self.num_envs = count = envs.num_envs
        self.metadata = {**envs.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
        shape = tuple(envs.single_observation_space.shape or ())[1:]
        self.single_observation_space = spaces.Box(
            0, 255, (frame_stack, *shape) if frame_stack > 1 else shape, np.uint8
        )
        self.observation_space = gymnasium.vector.utils.batch_space(self.single_observation_space, count)
        self.single_action_space = envs.single_action_space
        self.action_space = envs.action_space
        self._stacks = np.zeros((count, frame_stack, *shape), np.uint8)
        self._obs = self._stacks if frame_stack > 1 else self._stacks[:, 0]
        self._cuts_lives = cuts_lives
        self._rewards = tuple(rewards)
        self._restart = _NOOP if fire is None else fire
        self._lives = np.zeros(count, np.int32)
        self._begins = np.zeros(count, np.bool_)  # ended at the last step
        self._is_over = np.zeros(count, np.bool_)  # and so did its game
        self._returns = np.zeros(count, np.float64)
        self._lengths = np.zeros(count, np.int64)
        self._episode_returns = np.full(count, np.nan)
        self._episode_lengths = np.zeros(count, np.int64)

    def reset(
        self, *, seed: Any = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Start new games; every game gets its own seed from one seed."""
        seeds: Any = None
        if seed is not None:
            # 31 bits: ALE keeps a seed in a signed 32-bit integer, and treats 0 as no seed.
            state = np.random.SeedSequence(seed).generate_state(self.num_envs)
            seeds = np.maximum(state.astype(np.int64) >> 1, 1)
        frames, info = self._envs.reset(seed=seeds, options=options)
        self._stacks[:] = frames
        self._lives = np.array(info["lives"])
        self._begins[:] = self._is_over[:] = False
        self._returns[:] = self._lengths[:] = 0
        return self._obs, {}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Step all games; the observations are valid until the next step."""
        begins = self._begins
        is_any_new = bool(begins.any())
        if is_any_new:
            actions = np.where(begins, np.where(self._is_over, _NOOP, self._restart), actions)
        frames, reward, terminated, truncated, info = self._envs.step(actions)
        self._stacks[:, :-1] = self._stacks[:, 1:]
        self._stacks[:, -1] = frames[:, 0]
        if is_any_new:
            self._stacks[begins] = frames[begins]
        self._returns += reward
        self._lengths += ~self._is_over
        self._is_over = is_over = terminated | truncated
        lives = np.array(info["lives"])
        ends = is_over
        if self._cuts_lives:
            # A game may show no lives for a few frames although it is not over; the step between two lives ends none.
            is_lost = (lives > 0) & (lives < self._lives) & ~is_over & ~begins
            terminated = terminated | is_lost
            ends = is_over | is_lost
        self._lives, self._begins = lives, ends
        if ends.any():
            self._finish(is_over)
        for change in self._rewards:
            reward = change(reward)
        return self._obs, reward, terminated, truncated, {}

    def take_episodes(self, ended: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return raw return and length of the episodes that ended at the last step; nan and 0 if only a life ended."""
        return self._episode_returns.take(ended), self._episode_lengths.take(ended)

    def close(self, **kwargs: Any) -> None:
        self._envs.close(**kwargs)

    def _finish(self, is_over: NDArray[np.bool_]) -> None:
        self._episode_returns = np.where(is_over, self._returns, np.nan)
        self._episode_lengths = np.where(is_over, self._lengths, 0)
        self._returns[is_over] = 0.0
        self._lengths[is_over] = 0


def make_atari_vector(
    options: Mapping[str, Any], num_envs: int, *, wrappers: Sequence[tuple[str, Mapping[str, Any]]], frame_stack: int
) -> AtariVector:
    """Make ALE's vector environment with the settings of single games, named as ale-py names them. Wrappers are
    innermost first: `atari`, then any of `life_loss` and the reward wrappers. Raises `EnvError` if a wrapper has no
    vector form, `atari` is not the first one, or `fire_on_reset` has no `life_loss`.
    """
    chosen = read_wrappers(wrappers, frame_stack)
    if chosen.fires and not chosen.cuts_lives:
        raise EnvError(
            "in ALE's vector environment, fire_on_reset needs life_loss: FIRE would replace actions that agents chose; "
            "add the wrapper life_loss, or use the local pool"
        )
    game = {name: value for name, value in options.items() if name not in ("frameskip", "obs_type")}
    make = importlib.import_module("ale_py.vector_env").AtariVectorEnv
    envs = make(
        num_envs=num_envs,
        img_height=chosen.shape[0],
        img_width=chosen.shape[1],
        stack_num=1,
        use_fire_reset=chosen.fires,
        episodic_life=False,
        life_loss_info=False,
        reward_clipping=False,
        # It draws from 0 .. noop_max - 1 no-ops.
        noop_max=chosen.noop_max + 1,
        frameskip=chosen.frame_skip,
        maxpool=chosen.frame_skip > 1,
        **game,
    )
    fire = fire_action([action.name for action in envs.ale.get_action_set()]) if chosen.fires else None
    return AtariVector(envs, frame_stack=frame_stack, cuts_lives=chosen.cuts_lives, rewards=chosen.rewards, fire=fire)


class AtariOptions(NamedTuple):
    """The settings of a game that plays without wrappers around it; see `AtariPreprocessing` and `LifeLoss`."""

    shape: tuple[int, int]  #: of a frame: height and width
    noop_max: int
    frame_skip: int
    fires: bool
    cuts_lives: bool
    rewards: tuple[RewardFunction, ...]  #: functions that change the training rewards, in this order


def read_wrappers(wrappers: Sequence[tuple[str, Mapping[str, Any]]], frame_stack: int) -> AtariOptions:
    """Read names and arguments of wrappers; arguments and errors are those of `make_atari_vector`."""
    if not wrappers or wrappers[0][0] != "atari":
        raise EnvError("ALE's vector environment shows small gray frames; put the wrapper `atari` first")
    if frame_stack < 1:
        raise EnvError(f"frame_stack is {frame_stack}; it must be >= 1")
    preprocessing = _preprocessing(**wrappers[0][1])
    cuts_lives, rewards = False, []
    for name, args in wrappers[1:]:
        if name == "life_loss" and not args:
            cuts_lives = True
        elif name in _REWARDS:
            rewards.append(_REWARDS[name](**args))
        else:
            raise EnvError(f"the wrapper {name} does not work around a vector environment; use the local pool")
    return preprocessing._replace(cuts_lives=cuts_lives, rewards=tuple(rewards))


@checked
def _preprocessing(
    noop_max: NonNegativeInt = 30,
    frame_skip: PositiveInt = 4,
    screen_size: int | Sequence[int] = 84,
    fire_on_reset: bool = False,
) -> AtariOptions:
    return AtariOptions(screen_shape(screen_size), noop_max, frame_skip, bool(fire_on_reset), False, ())


def _clip(low: float = -1.0, high: float = 1.0) -> RewardFunction:
    if not low <= high:
        raise EnvError(f"reward_clip: low is {low}, high is {high}; low must not be larger")

    return lambda reward: np.clip(reward, low, high)


def _scale(scale: float) -> RewardFunction:
    return lambda reward: reward * scale


_REWARDS: Mapping[str, Any] = {"reward_sign": lambda: np.sign, "reward_clip": _clip, "reward_scale": _scale}
