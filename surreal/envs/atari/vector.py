"""ALE's own vector environment, made to do exactly what the wrappers around single games do.

Called by `make_vector_env`. What ale-py offers for training is left off, and done here for all games at once: its
`episodic_life` starts a new game whenever a life is lost, its `life_loss_info` takes a step with the action of a row
that wants none, its reward clipping hides the score, and its stacks go on over a lost life.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

_NOOP = 0

#: Changes the rewards [N] of a step.
RewardFunction = Callable[[NDArray[Any]], NDArray[Any]]


class AtariVector(VectorEnv[NDArray[np.uint8], NDArray[np.int64], Any]):
    """Stacks frames, cuts episodes at lost lives, changes rewards, and counts raw scores, over `AtariVectorEnv`.

    An environment that ended, its game or only a life, ignores its action at the next step, as gymnasium's mode
    NEXT_STEP has it: a new game begins then, or the old one continues with a no-op or FIRE.

    Args:
        envs: of single gray frames, [N, 1, height, width], in mode NEXT_STEP, with raw rewards.
        frame_stack: frames of an observation, >= 1; 1 gives [height, width].
        cuts_lives: whether a lost life ends an episode.
        rewards: functions that the rewards of training go through, in this order.
        fire: action between two lives, where the chosen one is ignored; None: a no-op. The games themselves press FIRE
            when they begin.
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
        """Start new games; one seed gives every game its own."""
        seeds: Any = None
        if seed is not None:
            # 31 bits: ALE keeps a seed in a signed 32-bit integer, and takes 0 for none.
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
            # A game that shows no lives for a few frames is not over; and the step between two lives ends none.
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
        """Give raw return and length of the episodes that ended at the last step; nan and 0 where only a life did."""
        return self._episode_returns.take(ended), self._episode_lengths.take(ended)

    def close(self, **kwargs: Any) -> None:
        """Close the games."""
        self._envs.close(**kwargs)

    def _finish(self, is_over: NDArray[np.bool_]) -> None:
        self._episode_returns = np.where(is_over, self._returns, np.nan)
        self._episode_lengths = np.where(is_over, self._lengths, 0)
        self._returns[is_over] = 0.0
        self._lengths[is_over] = 0
