"""The evaluation loop: a greedy agent plays whole episodes, and every episode counts the same.

Called by the evaluation process (`main/eval.py`), by `surreal play`, and by `surreal run --verify`. Nothing here knows
Redis: who calls `Evaluator.play` decides which parameters the agent's model holds, and they do not change meanwhile.

Why each environment has a quota: whoever runs k environments side by side and takes the first E episodes that end takes
too many short ones, because long episodes are still under way. Here each of the k environments plays E/k episodes to
their end, however long the others have been finished.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from surreal.envs.actions import ActionAdapter
from surreal.envs.pools.base import describe_observations
from surreal.errors import EnvError, StoppedError
from surreal.specs import ObsSpec
from surreal.types import Action, Obs


class EpisodeScore(NamedTuple):
    """One whole episode: undiscounted return, length in env steps, and the seed its environment was reset with."""

    episode_return: float
    length: int
    seed: int


class GreedyAgent(Protocol):
    """What the evaluation needs of an agent (see `surreal.agent.Agent`)."""

    def set_mode(self, mode: str) -> None: ...

    def act_batch(
        self, obs: Obs, explore: NDArray[np.bool_], env_ids: NDArray[np.int64], first: NDArray[np.bool_]
    ) -> Action: ...


@dataclass(frozen=True)
class EvaluationRound:
    """The episodes played with one frozen version of the parameters."""

    number: int
    version: int
    scores: tuple[EpisodeScore, ...]

    @property
    def mean_return(self) -> float:
        return float(np.mean([score.episode_return for score in self.scores]))

    @property
    def std_return(self) -> float:
        """Sample standard deviation (n - 1); 0 for one episode."""
        if len(self.scores) < 2:
            return 0.0
        return float(np.std([score.episode_return for score in self.scores], ddof=1))

    @property
    def standard_error(self) -> float:
        """Of the mean: `std / sqrt(n)`."""
        return self.std_return / math.sqrt(len(self.scores))

    @property
    def mean_length(self) -> float:
        return float(np.mean([score.length for score in self.scores]))

    def extended(self, scores: Sequence[EpisodeScore]) -> EvaluationRound:
        """The same round with further episodes of the same version."""
        return EvaluationRound(self.number, self.version, (*self.scores, *scores))


class Evaluator:
    """Plays whole episodes with an agent in eval mode, batched over environments.

        evaluator = Evaluator(agent, envs, rng=np.random.default_rng(0))
        scores = evaluator.play(20)

    Args:
        agent: acts without exploring; its mode is set to "eval".
        envs: gymnasium environments (5-value `step`), used and reset here, closed by `close`. More of them make a round
            faster, because the model sees larger batches; more than the episodes of a round are not used.
        rng: draws the seed of every episode.
    """

    def __init__(
        self, agent: GreedyAgent, envs: Sequence[gymnasium.Env[Any, Any]], *, rng: np.random.Generator
    ) -> None:
        if not envs:
            raise ValueError("an evaluation needs at least one environment")
        self._agent = agent
        self._envs = list(envs)
        self._rng = rng
        self._spec = describe_observations(envs[0].observation_space)
        self._adapter = ActionAdapter(envs[0].action_space)
        self.env_steps = 0
        agent.set_mode("eval")

    def play(self, episodes: int, *, stop: threading.Event | None = None) -> list[EpisodeScore]:
        """Play `episodes` (>= 1) whole episodes, each reset with a fresh seed.

        Raises:
            StoppedError: `stop` was set; unfinished episodes do not count, so there is no score.
        """
        if episodes < 1:
            raise ValueError(f"episodes is {episodes}; it must be >= 1")
        count = min(len(self._envs), episodes)
        seats = [_Seat(index, self._envs[index], self._spec) for index in range(count)]
        for number, seed in enumerate(self._rng.integers(0, 2**31 - 1, size=episodes)):
            seats[number % count].seeds.append(int(seed))
        for seat in seats:
            seat.next_episode()
        active = seats
        while active:
            if stop is not None and stop.is_set():
                raise StoppedError("asked to stop during an evaluation round")
            self._step(active)
            active = [seat for seat in active if not seat.is_finished]
        return [score for seat in seats for score in seat.scores]

    def close(self) -> None:
        """Close the environments."""
        for env in self._envs:
            env.close()

    def _step(self, seats: Sequence[_Seat]) -> None:
        columns = [np.stack(rows) for rows in zip(*(seat.leaves for seat in seats), strict=True)]
        action = self._agent.act_batch(
            self._spec.unflatten(columns),
            np.zeros(len(seats), dtype=np.bool_),
            np.array([seat.index for seat in seats], dtype=np.int64),
            np.array([seat.length == 0 for seat in seats], dtype=np.bool_),
        )
        for seat, choice in zip(seats, self._adapter.rows(action.actions), strict=True):
            seat.step(choice)
        self.env_steps += len(seats)


class _Seat:
    """One environment with the episodes it still has to play."""

    def __init__(self, index: int, env: gymnasium.Env[Any, Any], spec: ObsSpec) -> None:
        self.index = index
        self.seeds: list[int] = []
        self.scores: list[EpisodeScore] = []
        self.leaves: list[NDArray[Any]] = []
        self.length = 0
        self._env = env
        self._spec = spec
        self._return = 0.0

    @property
    def is_finished(self) -> bool:
        return len(self.scores) == len(self.seeds)

    def next_episode(self) -> None:
        self.length = 0
        self._return = 0.0
        obs, _ = self._env.reset(seed=self.seeds[len(self.scores)])
        self._see(obs)

    def step(self, action: Any) -> None:
        obs, reward, terminated, truncated, _ = self._env.step(action)
        self.length += 1
        self._return += float(reward)
        if terminated or truncated:
            self.scores.append(EpisodeScore(self._return, self.length, self.seeds[len(self.scores)]))
            if not self.is_finished:
                self.next_episode()
        else:
            self._see(obs)

    def _see(self, obs: Obs) -> None:
        try:
            # A copy: environments reuse their buffers, and this one is stacked with others later.
            self.leaves = [np.array(leaf) for leaf in self._spec.flatten(obs)]
        except ValueError as error:
            raise EnvError(f"{self._env} gave an observation that its space does not describe: {error}") from error
