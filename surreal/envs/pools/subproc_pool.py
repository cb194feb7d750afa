"""SubprocEnvPool: environments in worker processes, for environments that are slow or crash.

Workers are spawned, never forked. If the functions that make the environments are in the program's main file, the
workers import it, so its top level belongs behind `if __name__ == "__main__":`. Observations and actions are in shared
memory.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import selectors
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surreal.base.contracts import EnvPool
from surreal.base.errors import EnvError
from surreal.base.specs import ArraySpec
from surreal.base.system.health import RecentDeaths
from surreal.base.types import StepBatch
from surreal.envs.actions import ActionAdapter, mask_width
from surreal.envs.pools.base import (
    EpisodeCounter,
    OnError,
    Seed,
    checked_actions,
    describe_observations,
    empty_batch,
    env_seeds,
)
from surreal.envs.pools.env_list import EnvFactory
from surreal.envs.pools.rows import NO_IDS, RowJoiner
from surreal.envs.pools.subproc_worker import FAILED, QUIT, STEP, SharedMemory, WorkerHandle

logger = logging.getLogger(__name__)

_RESTART_WINDOW_S = 600.0
_CLOSE_TIMEOUT_S = 5.0


class SubprocEnvPool(EnvPool):
    """Environments that step in other processes; `recv` returns the rows of the workers that are ready.

    A worker that dies is started again: `closed_ids` names its environments, which return with FIRST rows, and the
    others continue. `on_error` applies to exceptions of an environment.

    Args:
        env_fns: functions that make one gymnasium environment each, importable or a `functools.partial` of such. The
            first one is also called once here, to learn the spaces.
        num_workers: processes, 1..len(env_fns); None takes one per processor. Fewer save memory, more wait less.
        seed: entropy from which every environment gets its own seed.
        explore: whether the agent may explore in these environments.
        record: whether their steps are sent as experience.
        on_error: "end" raises the exceptions of environments in `recv`; "restart" cuts the episode and makes the
            environment again.
        interventions: whether environments may replace actions, and then report them in `info["executed_action"]`.
        max_restarts: allowed deaths of workers within ten minutes.
        worker_timeout_s: kill a worker that needs longer for a step, s; None waits forever.

    Raises:
        EnvError: the environments cannot be made, or their spaces are not supported.
    """

    def __init__(
        self,
        env_fns: Sequence[EnvFactory],
        num_workers: int | None = None,
        *,
        seed: Seed = None,
        explore: bool = True,
        record: bool = True,
        on_error: OnError = "end",
        interventions: bool = False,
        max_restarts: int = 10,
        worker_timeout_s: float | None = None,
    ) -> None:
        if num_workers is None:
            num_workers = max(1, min(len(env_fns), os.cpu_count() or 1))
        if not 1 <= num_workers <= len(env_fns):
            raise ValueError(f"num_workers is {num_workers}; it must be 1..{len(env_fns)}, the number of environments")
        self.num_envs = len(env_fns)
        self._read_spaces(env_fns[0])
        self._env_fns = list(env_fns)
        # Fixed once, because the seeds of a restarted worker come from the same entropy.
        self._entropy: Seed = seed if seed is not None else int(np.random.default_rng().integers(2**63))
        self._joiner = RowJoiner(self.obs_spec, self.num_envs, explore=explore, record=record)
        self._on_error: OnError = on_error
        self._has_interventions = interventions
        self._lost_episodes = 0
        self._max_restarts = max_restarts
        self._worker_timeout_s = worker_timeout_s
        self._deaths = RecentDeaths(_RESTART_WINDOW_S)
        self._num_restarts = 0
        self._context = multiprocessing.get_context("spawn")
        action = ArraySpec("action", self._adapter.shape, self._adapter.dtype)
        width = mask_width(self.action_space)
        self._shared = SharedMemory.allocate(self._context, self.obs_spec, action, self.num_envs, width)
        self._columns, self._actions = self._shared.views()
        self._selector = selectors.DefaultSelector()
        self._has_mask = False
        self._wants_action = np.zeros(self.num_envs, np.bool_)
        self._was_lost = np.zeros(self.num_envs, np.bool_)
        self._steps = 0
        self._episodes = EpisodeCounter()
        self._is_closed = False
        edges = [self.num_envs * index // num_workers for index in range(num_workers + 1)]
        self._workers = [WorkerHandle(index, edges[index], edges[index + 1]) for index in range(num_workers)]
        self._worker_of = np.repeat(np.arange(num_workers), np.diff(edges))
        try:
            for worker in self._workers:
                self._start(worker)
        except BaseException:
            self.close()
            raise

    def recv(self, timeout_s: float = 1.0) -> StepBatch:
        """Wait until a worker is ready, and return the rows of all ready workers; see `EnvPool.recv`."""
        if self._is_closed:
            raise ValueError("the pool is closed")
        is_any_busy = any(worker.is_busy for worker in self._workers)
        self._kill_stuck()
        ready, ended, is_first, closed = [NO_IDS], [NO_IDS], [], [NO_IDS]
        # An idle worker's pipe is readable only if it died.
        for key, _ in self._selector.select(timeout_s if is_any_busy else 0.0):
            worker: WorkerHandle = key.data
            try:
                message = worker.connection.recv_bytes()
            except (EOFError, OSError):
                closed.append(self._restart(worker))
                continue
            if message[:1] == FAILED:
                raise self._failure(worker, message[1:].decode("utf-8", "replace"))
            self._has_mask |= bool(message[1])
            told = np.frombuffer(message[2:], np.int64)
            lost, finished = np.split(told[1:], told[:1])
            first = np.full(worker.stop - worker.start, worker.is_starting)
            first[told[1:]] = True
            closed.append(lost + worker.start)
            self._lost_episodes += len(lost)
            ready.append(np.arange(worker.start, worker.stop))
            ended.append(finished + worker.start)
            is_first.append(first)
            worker.is_busy = worker.is_starting = False
            worker.notice.end()
        for worker in self._workers:
            if worker.is_busy:
                worker.notice.tell("waiting for %s, which does not answer", worker.name)
        closed_ids = np.concatenate(closed)
        if not is_first:
            return empty_batch(self.obs_spec, closed_ids)
        ids = np.concatenate(ready)
        last = np.concatenate(ended)
        self._wants_action[ids] = True
        self._was_lost[ids] = False
        self._episodes.add(self._columns.episode_return[last], self._columns.episode_length[last])
        batch = self._joiner.join(
            self._columns.last_rows(last, has_mask=self._has_mask),
            self._columns.live_rows(ids, np.flatnonzero(np.concatenate(is_first)), has_mask=self._has_mask),
            closed_ids,
        )
        return self._columns.with_interventions(batch) if self._has_interventions else batch

    def send(self, actions: NDArray[Any], env_ids: NDArray[np.int64]) -> None:
        """Pass actions; a worker steps when all its environments have one."""
        actions, ids = checked_actions(self._adapter, actions, env_ids)
        is_inside = bool(np.all((ids >= 0) & (ids < self.num_envs)))
        if not is_inside or not np.all(self._wants_action[ids] | self._was_lost[ids]):
            waiting = np.flatnonzero(self._wants_action).tolist()
            raise ValueError(f"actions came for environments {ids.tolist()}, but {waiting} wait for one")
        # Ignore actions for rows of a worker that died since.
        alive = self._wants_action[ids]
        if not alive.all():
            self._was_lost[ids[~alive]] = False
            ids, actions = ids[alive], actions[alive]
        self._actions[ids] = actions
        self._wants_action[ids] = False
        self._steps += len(ids)
        for index in np.unique(self._worker_of[ids]).tolist():
            worker = self._workers[index]
            if not self._wants_action[worker.start : worker.stop].any():
                worker.tell(STEP)

    def metrics(self) -> dict[str, float]:
        """Return env steps, episodes with their mean return and length, and restarts of workers."""
        counts = {
            "env/steps_total": float(self._steps),
            "env/lost_episodes_total": float(self._lost_episodes),
            "env/worker_restarts_total": float(self._num_restarts),
        }
        return {**counts, **self._episodes.metrics()}

    def close(self) -> None:
        """Ask the workers to end, and kill those that do not."""
        if self._is_closed:
            return
        self._is_closed = True
        for worker in self._workers:
            worker.tell(QUIT)
        deadline_s = time.monotonic() + _CLOSE_TIMEOUT_S
        for worker in self._workers:
            worker.end(deadline_s)
        self._selector.close()

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers, in the order of their environments."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    def _read_spaces(self, make: EnvFactory) -> None:
        with closing(make()) as env:
            self.observation_space = env.observation_space
            self.obs_spec = describe_observations(env.observation_space)
            self._adapter = ActionAdapter(env.action_space)
            self.action_space = self._adapter.space

    def _start(self, worker: WorkerHandle) -> None:
        seeds = env_seeds(self._entropy, self.num_envs, incarnation=worker.incarnation)
        envs = slice(worker.start, worker.stop)
        options = self._on_error, self._has_interventions
        worker.launch(self._context, self._env_fns[envs], seeds[envs], self._shared, *options)
        self._selector.register(worker.connection, selectors.EVENT_READ, worker)

    def _restart(self, worker: WorkerHandle) -> NDArray[np.int64]:
        """Replace a dead worker; returns the environments whose episode was lost."""
        self._selector.unregister(worker.connection)
        exit_code = worker.end()
        if (deaths := self._deaths.add()) > self._max_restarts:
            raise EnvError(
                f"{worker.name} ended with exit code {exit_code}; {deaths} deaths in "
                f"{_RESTART_WINDOW_S:.0f} s are more than max_restarts = {self._max_restarts}"
            )
        logger.warning("%s ended with exit code %s and is started again", worker.name, exit_code)
        slots = np.arange(worker.start, worker.stop)
        closed = slots[:0] if worker.is_starting else slots
        self._was_lost[slots] = self._wants_action[slots]
        self._wants_action[slots] = False
        worker.incarnation += 1
        self._num_restarts += 1
        self._start(worker)
        return closed

    def _kill_stuck(self) -> None:
        limit = self._worker_timeout_s
        if limit is None:
            return
        for worker in self._workers:
            if worker.is_busy and time.monotonic() - worker.busy_since > limit:
                logger.warning("%s gave no answer within %g s and is killed", worker.name, limit)
                worker.kill()
                worker.busy_since = time.monotonic()

    def _failure(self, worker: WorkerHandle, text: str) -> EnvError:
        reason, _, details = text.partition("\n")
        error = EnvError(f"{worker.name} failed: {reason}")
        error.add_note(details)
        return error
