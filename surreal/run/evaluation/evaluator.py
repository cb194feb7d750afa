"""Whole episodes of an agent that does not explore, over several environments at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from surreal.agent import Agent
from surreal.base.errors import EnvError, StoppedError
from surreal.base.specs import ObsSpec
from surreal.base.types import Obs
from surreal.base.values import describe_unsound, is_sound
from surreal.envs.actions import ActionAdapter, flat_mask, mask_width
from surreal.envs.pools.base import FaultCounter, describe_observations
from surreal.run.evaluation.scores import EpisodeScore

logger = logging.getLogger(__name__)

_NO_REWARD = np.zeros(())


@dataclass(eq=False)
class EvaluationSlot:
    """One environment of a round."""

    index: int
    env: gymnasium.Env[Any, Any]  #: reset and stepped here
    spec: ObsSpec
    mask_width: int  #: discrete actions, 0 of other spaces
    max_steps: int | None  #: after which an episode is cut; None: never
    faults: FaultCounter  #: counts impossible numbers, and ends the run when there are too many
    redraw: Callable[[], int]  #: gives a seed in place of one whose episode does not count

    def __post_init__(self) -> None:
        self.seeds: list[int] = []
        self.scores: list[EpisodeScore] = []
        self.leaves: list[NDArray[Any]] = []
        self.mask = np.ones(self.mask_width, np.bool_)  #: [mask_width] actions that are legal
        self.has_mask = False
        self.length = 0  #: env steps of the running episode
        self.player = 0  #: player of a game of several, who is to act; else 0
        self._acted: set[int] = set()  # players that acted in this episode
        self._return = 0.0

    @property
    def is_finished(self) -> bool:
        return len(self.scores) == len(self.seeds)

    @property
    def is_first(self) -> bool:
        return self.player not in self._acted

    def next_episode(self) -> None:
        while True:
            self.length = 0
            self._acted.clear()
            self._return = 0.0
            obs, info = self.env.reset(seed=self.seeds[len(self.scores)])
            if self._see(obs, _NO_REWARD, info):
                return

    def step(self, action: Any) -> None:
        """Take a step, and begin the next episode if this one is over; raises as `next_episode`."""
        self._acted.add(self.player)
        obs, reward, terminated, truncated, info = self.env.step(action)
        if not self._see(obs, np.asarray(reward), info):
            self.next_episode()
            return
        self.length += 1
        self._return += float(reward)
        has_ended = terminated or truncated
        if has_ended or self.length == self.max_steps:
            self.faults.clear()
            seed = self.seeds[len(self.scores)]
            success = info.get("is_success", info.get("success"))  # the second name is of gymnasium-robotics' mazes
            self.scores.append(
                EpisodeScore(self._return, self.length, seed, not has_ended, None if success is None else bool(success))
            )
            if not self.is_finished:
                self.next_episode()

    def _see(self, obs: Obs, reward: NDArray[Any], info: Mapping[str, Any]) -> bool:
        """Prepare an observation for the agent; return False if the episode is invalid, so that another must begin."""
        try:
            # A copy: environments reuse their buffers, and this one is stacked with others later.
            self.leaves = [np.array(leaf) for leaf in self.spec.flatten(obs)]
        except ValueError as error:
            raise EnvError(f"{self.env} gave an observation that its space does not describe: {error}") from error
        self.player = info.get("player_number", 0)
        if len(self.mask) and (self.has_mask or "action_mask" in info):
            mask = info.get("action_mask")
            self.has_mask = True
            self.mask = np.ones_like(self.mask) if mask is None else flat_mask(mask, len(self.mask))
        if is_sound(reward) and all(is_sound(leaf) for leaf in self.leaves):
            return True
        names = [f"observation {leaf.name}".rstrip() for leaf in self.spec.leaves]
        shown = {"reward": reward, **dict(zip(names, self.leaves, strict=True))}
        self.faults.add(f"{self.env}, evaluation: {describe_unsound(shown)}")
        self.seeds[len(self.scores)] = self.redraw()
        return False


#: Steps of an episode in an environment without its own time limit; half an hour of an Atari game.
DEFAULT_MAX_STEPS = 27_000


class Evaluator:
    """Plays whole episodes with an agent in eval mode, batched over environments.

        evaluator = Evaluator(agent, envs, rng=np.random.default_rng(0))
        scores = evaluator.play(20)

    An episode with an impossible number (see `surreal.base.values`) does not count: another is played in its place.

    Args:
        agent: acts without exploring; its mode is set to "eval", or to "sample".
        envs: gymnasium environments (5-value `step`), used and reset here, closed by `close`. More of them make a round
            faster, because the model sees larger batches; more than the episodes of a round are not used.
        rng: draws the seed of every episode; may be replaced between rounds.
        max_episode_steps: env steps after which an episode is cut and counted; None: no bound for environments with
            their own time limit, and `DEFAULT_MAX_STEPS` for others.
        sample: whether the agent draws its actions from the policy's distribution, with seeds from `rng`.

    Attributes:
        env_steps: taken so far.
        void_episodes: that did not count.
    """

    def __init__(
        self,
        agent: Agent,
        envs: Sequence[gymnasium.Env[Any, Any]],
        *,
        rng: np.random.Generator,
        max_episode_steps: int | None = None,
        sample: bool = False,
    ) -> None:
        if not envs:
            raise ValueError("an evaluation needs at least one environment")
        self._agent = agent
        self._envs = list(envs)
        self.rng = rng
        self._max_steps = _step_bound(envs[0], max_episode_steps)
        self._spec = describe_observations(envs[0].observation_space)
        self._adapter = ActionAdapter(envs[0].action_space)
        self._fault_counters = [FaultCounter() for _ in envs]  # beyond a round: faults in a row may be in two of them
        self._slots: list[EvaluationSlot] = []
        self.env_steps = 0
        self.void_episodes = 0
        agent.set_mode("sample" if sample else "eval")
        self._sampler = agent.sampler if sample else None

    @property
    def progress(self) -> tuple[int, int]:
        """Episodes played of the round that is played now, or was played last, and how many it has; from any thread."""
        slots = self._slots
        return sum(len(slot.scores) for slot in slots), sum(len(slot.seeds) for slot in slots)

    def play(
        self, episodes: int, *, stop: threading.Event | None = None, on_step: Callable[[], object] | None = None
    ) -> list[EpisodeScore]:
        """Play `episodes` (>= 1) whole episodes, each reset with a fresh seed; raises `StoppedError` when `stop` is
        set, as unfinished episodes do not count, and `EnvError` for numbers that are impossible, or not what the space
        says.
        """
        if episodes < 1:
            raise ValueError(f"episodes is {episodes}; it must be >= 1")
        count = min(len(self._envs), episodes)
        width = mask_width(self._adapter.space)
        slots = [
            EvaluationSlot(
                index, env, self._spec, mask_width=width, max_steps=self._max_steps, faults=faults, redraw=self._redraw
            )
            for index, (env, faults) in enumerate(zip(self._envs[:count], self._fault_counters[:count], strict=True))
        ]
        for number, seed in enumerate(self.rng.integers(0, 2**31 - 1, size=episodes)):
            slots[number % count].seeds.append(int(seed))
        if self._sampler is not None:
            self._sampler.seed(int(self.rng.integers(2**63)))
        self._slots = active = slots
        for slot in slots:
            slot.next_episode()
        while active:
            if stop is not None and stop.is_set():
                raise StoppedError("asked to stop during an evaluation round")
            self._step(active)
            if on_step is not None:
                on_step()
            active = [slot for slot in active if not slot.is_finished]
        scores = [score for slot in slots for score in slot.scores]
        if cut := sum(score.is_cut for score in scores):
            logger.warning(
                "%d of %d episodes did not end within %d steps, and were cut", cut, episodes, self._max_steps
            )
        return scores

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _step(self, slots: Sequence[EvaluationSlot]) -> None:
        columns = [np.stack(rows) for rows in zip(*(slot.leaves for slot in slots), strict=True)]
        has_mask = any(slot.has_mask for slot in slots)
        action = self._agent.act_batch(
            self._spec.unflatten(columns),
            np.zeros(len(slots), dtype=np.bool_),
            # Each player of a game has its own slot, for what a recurrent policy remembers.
            np.array([slot.index + slot.player * len(self._envs) for slot in slots], dtype=np.int64),
            np.array([slot.is_first for slot in slots], dtype=np.bool_),
            np.stack([slot.mask for slot in slots]) if has_mask else None,
        )
        for slot, choice in zip(slots, self._adapter.rows(action.actions), strict=True):
            slot.step(choice)
        self.env_steps += len(slots)

    def _redraw(self) -> int:
        """An episode does not count: give the seed of the one in its place."""
        self.void_episodes += 1
        return int(self.rng.integers(0, 2**31 - 1))


def _step_bound(env: gymnasium.Env[Any, Any], asked: int | None) -> int | None:
    """Return the limit of an episode's length: as given, or none if the environment has its own limit."""
    if asked is not None:
        return asked
    inner: Any = env
    while isinstance(inner, gymnasium.Wrapper):
        if isinstance(inner, gymnasium.wrappers.TimeLimit):
            return None
        inner = inner.env
    return DEFAULT_MAX_STEPS
