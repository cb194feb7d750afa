"""`Seat`: one environment, with the episodes of a round that it still has to play."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import EnvError
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.base.values import describe_unsound, is_sound
from surreal.envs.actions import flat_mask
from surreal.envs.pools.base import FaultCounter
from surreal.run.evaluation.rounds import EpisodeScore

_NO_REWARD = np.zeros(())


class Seat:
    """One environment of a round.

    Args:
        index: of the environment.
        env: reset and stepped here.
        spec: of its observations.
        mask_width: discrete actions, 0 of other spaces.
        max_steps: after which an episode is cut; None: never.
        faults: counts impossible numbers, and ends the run when there are too many.
        redraw: gives a seed in place of one whose episode does not count.

    Attributes:
        seeds: of its episodes.
        scores: of those that were played.
        leaves: of the newest observation.
        mask: [mask_width] actions that are legal.
        has_mask: whether the environment says what is legal.
        length: env steps of the running episode.
        player: of a game of several, who is to act; else 0.
        is_first: whether that one has not acted yet in this episode.
    """

    def __init__(
        self,
        index: int,
        env: gymnasium.Env[Any, Any],
        spec: ObsSpec,
        *,
        mask_width: int,
        max_steps: int | None,
        faults: FaultCounter,
        redraw: Callable[[], int],
    ) -> None:
        self.index = index
        self.seeds: list[int] = []
        self.scores: list[EpisodeScore] = []
        self.leaves: list[NDArray[Any]] = []
        self.mask = np.ones(mask_width, np.bool_)
        self.has_mask = False
        self.length = 0
        self.player = 0
        self._acted: set[int] = set()  # players that acted in this episode
        self._env = env
        self._spec = spec
        self._max_steps = max_steps
        self._faults = faults
        self._redraw = redraw
        self._return = 0.0

    @property
    def is_finished(self) -> bool:
        """Whether all of its episodes were played."""
        return len(self.scores) == len(self.seeds)

    @property
    def is_first(self) -> bool:
        return self.player not in self._acted

    def next_episode(self) -> None:
        """Begin the next episode.

        Raises:
            EnvError: as `Evaluator.play`.
        """
        while True:
            self.length = 0
            self._acted.clear()
            self._return = 0.0
            obs, info = self._env.reset(seed=self.seeds[len(self.scores)])
            if self._see(obs, _NO_REWARD, info):
                return

    def step(self, action: Any) -> None:
        """Take a step, and begin the next episode if this one is over; raises as `next_episode`."""
        self._acted.add(self.player)
        obs, reward, terminated, truncated, info = self._env.step(action)
        if not self._see(obs, np.asarray(reward), info):
            self.next_episode()
            return
        self.length += 1
        self._return += float(reward)
        has_ended = terminated or truncated
        if has_ended or self.length == self._max_steps:
            self._faults.clear()
            seed = self.seeds[len(self.scores)]
            self.scores.append(EpisodeScore(self._return, self.length, seed, is_cut=not has_ended))
            if not self.is_finished:
                self.next_episode()

    def _see(self, obs: Obs, reward: NDArray[Any], info: Mapping[str, Any]) -> bool:
        """Keep what the agent needs of an observation; false if the episode cannot count and another is to begin."""
        try:
            # A copy: environments reuse their buffers, and this one is stacked with others later.
            self.leaves = [np.array(leaf) for leaf in self._spec.flatten(obs)]
        except ValueError as error:
            raise EnvError(f"{self._env} gave an observation that its space does not describe: {error}") from error
        self.player = info.get("player_number", 0)
        if len(self.mask) and (self.has_mask or "action_mask" in info):
            mask = info.get("action_mask")
            self.has_mask = True
            self.mask = np.ones_like(self.mask) if mask is None else flat_mask(mask, len(self.mask))
        if is_sound(reward) and all(is_sound(leaf) for leaf in self.leaves):
            return True
        names = [f"observation {leaf.name}".rstrip() for leaf in self._spec.leaves]
        shown = {"reward": reward, **dict(zip(names, self.leaves, strict=True))}
        self._faults.add(f"{self._env}, evaluation: {describe_unsound(shown)}")
        self.seeds[len(self.scores)] = self._redraw()
        return False
