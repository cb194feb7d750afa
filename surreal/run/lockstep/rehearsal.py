"""`Rehearsal`: runs a run's agents, replay and learner in turn in this process, on a small scale.

The classes are those that the configuration names, made by `surreal.run.build`; the experience is in this process's
memory, like that of an agent that computes gradients. The check before a run and `surreal doctor` use it.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, closing
from typing import Any

import gymnasium
import numpy as np

from surreal.agent import AgentLoop
from surreal.base import tree
from surreal.config import Config
from surreal.distributed.calls import LocalServer
from surreal.distributed.experience.local import LocalShards
from surreal.envs import EnvPool
from surreal.run.build.acting import build_agent, build_model, build_sender
from surreal.run.build.environments import Spaces, build_pool
from surreal.run.build.learning import build_learner, build_replay, check_replay, replay_arguments
from surreal.run.build.lockstep import changed, gradients_config
from surreal.run.session.intake import SteppedIntake

#: Environments of the rehearsal, at most: enough for trajectories of several lanes.
_MOST_ENVS = 8
# Limits of the smallest rehearsal: rows of a batch of transitions, trajectories or sequences of any other batch, rows
# of these, and transitions that the replay keeps. A user's class may count on the size of usual batches.
_ROWS, _LANES = 256, 4
_LENGTHS = {"trajectory_steps": 8, "sequence_length": 12, "burn_in": 4}
_CAPACITY = 2048
_CHUNK_STEPS = 32
#: Learners' arguments that have one update wait for many batches, or for a compiler.
_LONG = ("compile", "timesteps_per_batch", "episodes_per_batch")
#: Steps of each environment from one look for a batch to the next.
_TURN_STEPS = 16
#: Larger random numbers, which spaces without true bounds allow, are drawn again from a normal distribution.
_LARGEST = 1e6
_END_SHARE = 0.1


class Rehearsal:
    """Acts, and learns from it.

    Args:
        config: config of the run, made small by `small_config` or `smallest_config`.
        pool: environments to act in, which the stack closes; None: the configuration's.
    """

    def __init__(self, config: Config, stack: ExitStack, pool: EnvPool | None = None) -> None:
        pool = stack.enter_context(closing(build_pool(config, index=0) if pool is None else pool))
        spaces = Spaces(pool.obs_spec, pool.action_space)
        self.model = build_model(config, spaces)
        shards = stack.enter_context(closing(LocalShards("rehearsal")))
        self._replay = build_replay(config, shards, seed=config.seed)
        stack.callback(self._replay.join)
        stack.callback(self._replay.stop)
        self._intake = SteppedIntake(self._replay)
        self.learner = build_learner(config, self.model, self._replay)
        server, rng = LocalServer(self.learner.remote_methods()), np.random.default_rng(config.seed)
        agent = stack.enter_context(closing(build_agent(config, self.model, spaces, index=0, rng=rng, server=server)))
        self._sender = build_sender(config, shards, pool, threading.Event(), is_limited=False)
        stack.callback(self._sender.discard)
        self.learner.metrics_interval = 1
        self._loop = AgentLoop(pool, agent, self._sender, gamma=config.learner.gamma)
        self._acted_s = 0.0
        self._rows = 0
        self._batches = 0

    @property
    def env_steps(self) -> int:
        return self._loop.env_steps

    @property
    def env_steps_per_s(self) -> float:
        """Rate of acting, with environments."""
        return self.env_steps / max(self._acted_s, 1e-9)

    def act(self) -> None:
        began_s = time.perf_counter()
        for _ in range(_TURN_STEPS):
            self._loop.step()
        self._sender.flush()
        self._acted_s += time.perf_counter() - began_s

    def next_batch(self) -> Any:
        """Return a batch of the sent steps; None if there are too few."""
        self._intake.take_in()
        return self._intake.next_batch()

    def learn(self, batch: Any) -> float:
        """Perform an update; returns its duration, s."""
        began_s = time.perf_counter()
        self.learner.optimize(self._batches, batch)
        self._batches += 1
        self._replay.commit(self.learner.version)
        return time.perf_counter() - began_s


def small_config(config: Config) -> Config:
    """Return the settings of a rehearsal: one process, few environments, batches as soon as there is anything."""
    changes: dict[str, dict[str, Any]] = {
        "env": {"num_envs": min(config.env.num_envs, _MOST_ENVS), "num_workers": None},
        "agent": {"show_ui": False, "round_steps": None},
        "learner": {
            "ranks": 1,
            "compile": False,
            "args": {key: value for key, value in config.learner.args.items() if key != "compile"},
        },
        "redis": {"replay_address": None},
        "replay": {"follow": False, "shards": None, "samples_per_insert_tolerance": None, "pin_memory": False},
    }
    if config.env.pool in ("subproc", "envpool"):
        changes["env"]["pool"] = "local"
    config = changed(config, changes)
    if check_replay(config).hands_out in ("transitions", "sequences"):
        start = min(config.replay.start_size or 1000, max(2 * config.learner.batch_size, 64))
        capacity = min(config.replay.capacity or 100_000, max(8 * start, 20_000))
        ratio = float(config.learner.batch_size)  # an update for each env step
        config = changed(config, {"replay": {"start_size": start, "capacity": capacity, "samples_per_insert": ratio}})
    return gradients_config(config)


def smallest_config(config: Config) -> Config:
    """Return the settings for one update that takes milliseconds: few rows, short trajectories, one gathered batch."""
    given = replay_arguments(config)
    most = _ROWS if check_replay(config).hands_out == "transitions" else _LANES
    batch_size = min(config.learner.batch_size, most)
    lengths = {name: min(given[name], length) for name, length in _LENGTHS.items() if given.get(name) is not None}
    sizes = {"start_size": max(batch_size, 2 * _CHUNK_STEPS), "capacity": _CAPACITY}
    args = {name: value for name, value in config.learner.args.items() if name not in _LONG}
    changes: dict[str, dict[str, Any]] = {
        "env": {"num_envs": _MOST_ENVS},
        "learner": {"batch_size": batch_size, "args": args},
        "replay": {
            "args": config.replay.args | lengths,
            **{name: size for name, size in sizes.items() if name in given},
        },
        "sender": {"chunk_steps": min(config.sender.chunk_steps, _CHUNK_STEPS)},
    }
    return small_config(changed(config, changes))


class RandomEnv(gymnasium.Env[Any, Any]):
    """Draws observations from a space. A tenth of the steps end their episode, half of these by truncation."""

    def __init__(self, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        self.observation_space = observation_space
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        end = self.np_random.random() / _END_SHARE
        return self._observe(), float(self.np_random.normal()), end < 0.5, 0.5 <= end < 1.0, {}

    def _observe(self) -> Any:
        return tree.map_leaves(self._bounded, self.observation_space.sample())

    def _bounded(self, leaf: Any) -> Any:
        leaf = np.asarray(leaf)
        if leaf.dtype.kind != "f":
            return leaf
        with np.errstate(invalid="ignore"):
            is_usable = np.abs(leaf) < _LARGEST
        return np.where(is_usable, leaf, self.np_random.normal(size=leaf.shape)).astype(leaf.dtype)
