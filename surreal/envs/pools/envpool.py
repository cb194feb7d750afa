"""ThreadedEnvPool: environments of the package EnvPool, which step in C++ threads. Extra `envpool`.

It plays gymnasium's ids (Atari, MuJoCo v5, classic control, Box2D, dm_control) without Python in a step. A batch has
the environments that were ready first, and the threads step the others while the agent computes actions.
docs/environments.md lists how these environments differ from gymnasium's.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from surreal.base.contracts import EnvPool
from surreal.base.errors import EnvError
from surreal.base.system.process import count_cores
from surreal.base.system.program import install_command
from surreal.base.types import StepBatch
from surreal.base.values import is_sound
from surreal.envs.actions import ActionAdapter
from surreal.envs.atari.preprocessing import is_atari
from surreal.envs.atari.vector import AtariOptions, read_wrappers
from surreal.envs.ids import find_env
from surreal.envs.pools.base import (
    EpisodeCounter,
    Seed,
    check_awaited,
    checked_actions,
    describe_observations,
    describe_unsound_step,
    empty_batch,
    env_seeds,
)
from surreal.envs.pools.columns import describe_leaf
from surreal.envs.pools.rows import LastRows, LiveRows, RowJoiner
from surreal.envs.wrappers.named import WrapperSpec, select_wrappers


class ThreadedEnvPool(EnvPool):
    """Copies of one environment in EnvPool's threads.

    Args:
        env_id: an id of gymnasium whose environment EnvPool has, such as `ALE/Pong-v5` or `dm_control/cheetah-run-v0`.
        observation_space: the space of gymnasium's environment behind wrappers and stacking, which observations have.
        kwargs: arguments of EnvPool's environment.
        wrappers: only for Atari games: `atari`, then any of `life_loss` and the reward wrappers.
        frame_stack: frames of an observation; only for Atari games.
        num_threads: threads that step the environments; None: one per core, at most `num_envs`.
        batch_size: rows of a batch; None: half of the environments, so that stepping and acting overlap.
        seed: entropy of the seed.
        explore: whether the agent may explore in these environments.
        record: whether their steps are sent as experience.

    Raises:
        EnvError: the package is missing or does not have the environment, or refuses its arguments.
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        *,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        kwargs: Mapping[str, Any] | None = None,
        wrappers: Sequence[WrapperSpec] = (),
        frame_stack: int = 1,
        num_threads: int | None = None,
        batch_size: int | None = None,
        seed: Seed = None,
        explore: bool = True,
        record: bool = True,
    ) -> None:
        self.num_envs = num_envs
        self.observation_space = observation_space
        self.obs_spec = describe_observations(observation_space)
        self._adapter = ActionAdapter(action_space)
        self.action_space = self._adapter.space
        self._batch_size = batch_size or max(1, num_envs // 2)
        self._atari = _atari_options(env_id, wrappers, frame_stack)
        threads = num_threads or max(1, min(num_envs, count_cores()))
        options = {"num_threads": threads, "batch_size": self._batch_size, "seed": env_seeds(seed, 1)[0]}
        self._envs = _make(env_id, num_envs, {**_arguments(env_id, kwargs, self._atari, frame_stack), **options})
        self._action_dtype = self._envs.spec.action_array_spec["action"].dtype
        self._name = env_id
        self._is_single_frame = self._atari is not None and frame_stack == 1
        self._joiner = RowJoiner(self.obs_spec, num_envs, explore=explore, record=record)
        self._empty = empty_batch(self.obs_spec)
        self._begins = np.ones(num_envs, np.bool_)  # the next row is the first of an episode
        self._waits = np.zeros(num_envs, np.bool_)  # for an action
        self._num_waiting = 0
        # EnvPool orders the rows of a batch of all environments by the call that sends their actions: it must be one.
        self._actions: NDArray[Any] | None = None
        if self._batch_size == num_envs:
            self._actions = np.repeat(self._adapter.default()[None], num_envs, axis=0)
            self._all_ids = np.arange(num_envs)
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self._steps = 0
        self._episodes = EpisodeCounter()
        self._is_started = False

    def recv(self, timeout_s: float = 1.0) -> StepBatch:
        """Wait for a batch, however long; returns an empty one at once if too many environments need an action."""
        if self.num_envs - self._num_waiting < self._batch_size or self._envs is None:
            return self._empty
        if not self._is_started:
            self._envs.async_reset()
            self._is_started = True
        obs, reward, terminated, truncated, info = self._envs.recv()
        ids = np.asarray(info["env_id"], np.int64)
        begins = self._begins.take(ids)
        reward = np.where(begins, 0.0, reward)  # a reset leaves in it whatever its memory held
        leaves = self._leaves(obs)
        if not (is_sound(reward) and all(map(is_sound, leaves))):
            problem = describe_unsound_step(obs, reward)
            raise EnvError(f"{self._name} cannot continue, because EnvPool resets no single environment: {problem}")
        self._returns[ids] += reward
        self._lengths[ids] += ~begins
        is_ended = np.logical_or(terminated, truncated)
        self._begins[ids] = is_ended
        if self._atari is not None:
            for change in self._atari.rewards:
                reward = change(reward)
        ended, live = is_ended.nonzero()[0], np.logical_not(is_ended).nonzero()[0]
        self._waits[ids[live]] = True
        self._num_waiting += len(live)
        if not len(ended):
            return self._joiner.live(LiveRows(ids, leaves, reward, begins.nonzero()[0], None))
        last_ids = ids[ended]
        # The action is ignored: the step begins the next episode.
        self._give(np.repeat(self._adapter.default()[None], len(ended), axis=0), last_ids)
        returns, lengths = self._finish(last_ids, truncated[ended], info, ended)
        self._episodes.add(returns, lengths)
        outcome = reward[ended], terminated[ended], truncated[ended], returns, lengths
        last = LastRows(last_ids, [leaf.take(ended, 0) for leaf in leaves], None, *outcome)
        rows = [leaf.take(live, 0) for leaf in leaves]
        return self._joiner.join(last, LiveRows(ids[live], rows, reward[live], begins[live].nonzero()[0], None))

    def send(self, actions: NDArray[Any], env_ids: NDArray[np.int64]) -> None:
        actions, ids = checked_actions(self._adapter, actions, env_ids)
        check_awaited(ids, self._waits)
        if not len(ids):
            return
        self._waits[ids] = False
        self._num_waiting -= len(ids)
        self._steps += len(ids)
        self._give(actions, ids)

    def metrics(self) -> dict[str, float]:
        """Return env steps, episodes, and their mean return and length."""
        return {"env/steps_total": float(self._steps), **self._episodes.metrics()}

    def close(self) -> None:
        self._envs = None  # its threads end with it

    def _give(self, actions: NDArray[Any], ids: NDArray[np.int64]) -> None:
        if self._actions is not None:
            self._actions[ids] = actions
            if self._num_waiting:
                return
            actions, ids = self._actions, self._all_ids
        native = np.ascontiguousarray(self._adapter.batch(actions), self._action_dtype)
        self._envs.send(native, ids.astype(np.int32))

    def _finish(
        self, ids: NDArray[np.int64], truncated: NDArray[np.bool_], info: Mapping[str, Any], ended: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Take return and length of episodes; nan and 0 where only a life ended."""
        returns, lengths = self._returns[ids], self._lengths[ids]
        if self._atari is not None and self._atari.cuts_lives:
            is_over = np.logical_or(np.asarray(info["terminated"])[ended] != 0, truncated)
            returns, lengths, ids = np.where(is_over, returns, np.nan), np.where(is_over, lengths, 0), ids[is_over]
        self._returns[ids] = 0.0
        self._lengths[ids] = 0
        return returns, lengths

    def _leaves(self, obs: Any) -> list[NDArray[Any]]:
        leaves = self.obs_spec.flatten(obs)
        if self._is_single_frame:
            leaves = [leaf[:, 0] for leaf in leaves]
        for index, (leaf, spec) in enumerate(zip(leaves, self.obs_spec.leaves, strict=True)):
            if leaf.shape[1:] != spec.shape:
                problem = f"EnvPool gives {describe_leaf(spec)} of shape {leaf.shape[1:]} in {self._name}"
                raise EnvError(f"{problem}, but gymnasium's have {spec.shape}; use env.pool: local")
            leaves[index] = leaf.astype(spec.dtype, copy=False)
        return leaves


def envpool_name(env_id: str) -> str:
    """Translate gymnasium's id into EnvPool's: `dm_control/cheetah-run-v0` into CheetahRun-v1."""
    namespace, _, name = env_id.rpartition("/")
    if namespace == "dm_control":
        task = name.rpartition("-v")[0]
        return "".join(word.capitalize() for word in task.replace("_", "-").split("-")) + "-v1"
    return name


def _atari_options(env_id: str, wrappers: Sequence[WrapperSpec], frame_stack: int) -> AtariOptions | None:
    chosen = select_wrappers(wrappers, training=True)
    if is_atari(env_id):
        return read_wrappers([(spec.name, spec.args) for spec in chosen], frame_stack)
    if frame_stack != 1:
        raise EnvError(f"EnvPool's {env_id} does not stack frames; use the local pool")
    if chosen:
        names = ", ".join(spec.name for spec in chosen)
        raise EnvError(f"EnvPool's environments take no wrappers, got {names}; use the local pool")
    return None


def _arguments(
    env_id: str, kwargs: Mapping[str, Any] | None, atari: AtariOptions | None, frame_stack: int
) -> dict[str, Any]:
    if atari is None:
        return dict(kwargs or {})
    game = {**find_env(env_id).kwargs, **dict(kwargs or {})}
    for name in ("game", "obs_type", "frameskip"):
        game.pop(name, None)
    frames = game.pop("max_num_frames_per_episode", None)
    return {
        **({} if frames is None else {"max_episode_steps": frames // atari.frame_skip}),
        "stack_num": frame_stack,
        "frame_skip": atari.frame_skip,
        # It draws from 1 .. noop_max, and takes 0 for an error.
        "noop_max": max(1, atari.noop_max),
        "img_height": atari.shape[0],
        "img_width": atari.shape[1],
        "use_fire_reset": atari.fires,
        "episodic_life": atari.cuts_lives,
        **game,
    }


def _make(env_id: str, num_envs: int, options: Mapping[str, Any]) -> Any:
    try:
        envpool = importlib.import_module("envpool")
    except ImportError as error:
        raise EnvError(
            f"env.pool is envpool, whose package is not installed; run: {install_command('envpool')}"
        ) from error
    name = envpool_name(env_id)
    if name not in envpool.list_all_envs():
        raise EnvError(f"EnvPool has no environment {name} for {env_id}; use the local pool")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its spaces have bounds that float32 cannot hold
            envs = envpool.make(name, env_type="gymnasium", num_envs=num_envs, **options)
            _ = envs.observation_space  # made once, now
            return envs
    except Exception as error:
        raise EnvError(f"EnvPool's {name} cannot be made with {dict(options)}: {error}") from error
