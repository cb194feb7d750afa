"""Deterministic little environments, and a deliberately naive loop over one of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces

from surreal.base.types import StepBatch, StepKind

BOX = spaces.Box(-np.inf, np.inf, (3,), np.float32)
OBSERVATIONS = {
    "box": BOX,
    "frame": spaces.Box(0, 255, (4, 5), np.uint8),
    "discrete": spaces.Discrete(1000),
    "dict": spaces.Dict({"b": BOX, "a": spaces.Dict({"z": spaces.Discrete(50), "y": spaces.MultiBinary(2)})}),
    "tuple": spaces.Tuple((BOX, spaces.Box(0, 255, (2, 2), np.uint8))),
}
ACTIONS = {
    "discrete": spaces.Discrete(3),
    "shifted": spaces.Discrete(3, start=5),
    "multi": spaces.MultiDiscrete([2, 3]),
    "binary": spaces.MultiBinary(4),
    "box": spaces.Box(-1, 1, (2,), np.float32),
    "dict": spaces.Dict({"arm": spaces.Box(-1, 1, (2,), np.float32), "grip": spaces.Discrete(2)}),
    "tuple": spaces.Tuple((spaces.Discrete(2), spaces.MultiDiscrete([2, 4]))),
}


class ToyEnv(gymnasium.Env[Any, Any]):
    """Episodes of random length that end either way; every number in an observation tells where it comes from."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        obs: str = "box",
        action: str = "discrete",
        masks: bool = False,
        max_length: int = 6,
        render_mode: Any = None,
    ) -> None:
        self.observation_space = OBSERVATIONS[obs]
        self.action_space = ACTIONS[action]
        self.render_mode = render_mode
        self._masks = masks
        self._max_length = max_length
        self._sample: np.random.Generator = np.random.default_rng()
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(1, self._max_length + 1))
        return self._obs(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"illegal action {action!r}")
        if self._left <= 0:
            raise RuntimeError("stepped after the end")
        self.actions.append(action)
        self._left -= 1
        reward = float(self.np_random.normal()) + float(np.sum(spaces.flatten(self.action_space, action)))
        end = int(self.np_random.integers(3)) if self._left == 0 else -1
        return self._obs(), reward, end in (0, 2), end in (1, 2), self._info()

    def render(self) -> Any:
        return np.full((16, 16, 3), 100, np.uint8)

    def _obs(self) -> Any:
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        return self.observation_space.sample()

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self.np_random.integers(0, 2, 3).astype(np.int8)} if self._masks else {}


class Failing(ToyEnv):
    """Raises in its first step."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        raise ZeroDivisionError("the physics broke")


class Stuck(ToyEnv):
    """Never returns from a step while the file is there."""

    def __init__(self, flag: str) -> None:
        super().__init__()
        self._flag = Path(flag)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        while self._flag.exists():
            time.sleep(0.01)
        return super().step(action)


class Unfit(ToyEnv):
    """Breaks the promise of its observation space, from the first observation on or later."""

    def __init__(self, found: Any, *, at_reset: bool = False) -> None:
        super().__init__(obs="dict" if isinstance(found, dict) else "box", max_length=10)
        self._found = found
        self._is_lying = at_reset

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._is_lying = True
        return super().step(action)

    def _obs(self) -> Any:
        return self._found if self._is_lying else super()._obs()


def flat(obs: Any) -> tuple[float, ...]:
    """All numbers of a nested observation, keys sorted."""
    if isinstance(obs, dict):
        return tuple(number for key in sorted(obs) for number in flat(obs[key]))
    if isinstance(obs, tuple):
        return tuple(number for item in obs for number in flat(item))
    return tuple(np.asarray(obs, np.float64).ravel().tolist())


def action_of(space: gymnasium.Space[Any], env_id: int, count: int) -> Any:
    """The action of an environment's count-th step: any, but always the same."""
    space.seed(1000 * env_id + count)
    return space.sample()


def naive_rows(env: Any, seed: int, pool_space: Any, to_env: Any, env_id: int, count: int) -> list[tuple[Any, ...]]:
    """The first rows that a pool must hand over for one environment, by the plainest loop."""
    rows: list[tuple[Any, ...]] = []
    obs, info = env.reset(seed=seed)
    steps = 0
    while len(rows) < count:
        rows.append((StepKind.FIRST, flat(obs), 0.0, False, False, None, None, mask_of(info)))
        total, length, done = 0.0, 0, False
        while not done:
            obs, reward, terminated, truncated, info = env.step(to_env(action_of(pool_space, env_id, steps)))
            steps, total, length, done = steps + 1, total + reward, length + 1, terminated or truncated
            kind = StepKind.LAST if done else StepKind.MID
            end = (total, length) if done else (None, None)
            rows.append((kind, flat(obs), np.float32(reward), terminated, truncated, *end, mask_of(info)))
        obs, info = env.reset()
    return rows[:count]


def mask_of(info: dict[str, Any]) -> Any:
    return tuple(bool(entry) for entry in info["action_mask"]) if "action_mask" in info else None


def pool_rows(pool: Any, count: int, batches: list[StepBatch] | None = None) -> dict[int, list[tuple[Any, ...]]]:
    """The first rows of each environment of a pool, driven with the same actions."""
    rows: dict[int, list[tuple[Any, ...]]] = {index: [] for index in range(pool.num_envs)}
    steps = dict.fromkeys(rows, 0)
    while min(len(found) for found in rows.values()) < count:
        batch = pool.recv(timeout_s=60.0)
        if batches is not None:
            batches.append(batch)
        check_batch(batch)
        leaves = pool.obs_spec.flatten(batch.obs)
        for row, env_id in enumerate(batch.env_ids.tolist()):
            is_last = row < batch.num_last
            obs = flat(pool.obs_spec.unflatten([leaf[row] for leaf in leaves]))
            end = (batch.info["episode_return"][row], batch.info["episode_length"][row]) if is_last else (None, None)
            mask = tuple(batch.info["action_mask"][row].tolist()) if "action_mask" in batch.info else None
            outcome = batch.reward[row], bool(batch.terminated[row]), bool(batch.truncated[row])
            rows[env_id].append((StepKind(batch.kind[row]), obs, *outcome, *end, mask))
        ids = batch.env_ids[batch.num_last :]
        if len(ids):
            actions = [action_of(pool.action_space, env_id, steps[env_id]) for env_id in ids.tolist()]
            for env_id in ids.tolist():
                steps[env_id] += 1
            pool.send(np.array(actions), ids)
    return {env_id: found[:count] for env_id, found in rows.items()}


def check_batch(batch: StepBatch) -> None:
    """What holds for every batch of every pool."""
    count = len(batch.env_ids)
    for column in (batch.kind, batch.reward, batch.terminated, batch.truncated, batch.explore, batch.record):
        assert column.shape == (count,)
    assert (batch.kind.dtype, batch.env_ids.dtype, batch.reward.dtype) == (np.uint8, np.int64, np.float32)
    assert (batch.kind[: batch.num_last] == StepKind.LAST).all()
    assert (batch.kind[batch.num_last :] != StepKind.LAST).all()
    assert ("episode_return" in batch.info) == (batch.num_last > 0)
    live = batch.env_ids[batch.num_last :]
    assert len(set(live.tolist())) == len(live)
