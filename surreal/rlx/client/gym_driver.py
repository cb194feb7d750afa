"""Run gymnasium environments as external ones, each in its own thread with its own connection.

Used by `surreal rlx-client`. A time limit goes out as `truncated`, so that the learner bootstraps there as it does for
a local environment. A lost connection is made again for as long as `attempts` lasts, and the episode it cut off is
repeated.

    counts = run_envs([lambda: gymnasium.make("CartPole-v1")] * 4, DriverOptions("localhost:7001"))
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from surreal.base.errors import EnvError, StoppedError
from surreal.base.types import EXECUTED_ACTION
from surreal.rlx.client.agent_proxy import AgentProxy
from surreal.rlx.client.connection import AgentProxyException
from surreal.rlx.client.training import TrainingBase

logger = logging.getLogger(__name__)

Env = gymnasium.Env[Any, Any]

_JOIN_INTERVAL_S = 0.2
_CLOSE_TIMEOUT_S = 3.0


@dataclass(frozen=True)
class DriverOptions:
    """Options of running environments."""

    server: str  #: address, as `AgentProxy` takes it
    episodes: int | None = None  #: total number, split evenly between the environments; None: until stopped
    exploit: bool = False  #: act as well as the agent can, and learn nothing
    #: seed of the first episodes, from which each environment derives its own; None: a new one each time
    seed: int | None = None
    attempts: int = 40  #: number of attempts to connect before giving up, >= 1; forty take four to five minutes
    timeout_s: float = 60.0  #: longest wait for one answer
    token: str | None = None  #: the token that the server requires
    tls_ca: str | None = None  #: file of certificates to check the server's against; turns TLS on
    tls_cert: str | None = None  #: file with a certificate for the server
    tls_key: str | None = None  #: its key, if it is in another file


@dataclass(frozen=True)
class EpisodeEnd:
    """The result of a whole episode."""

    env_index: int  #: index of the environment
    episode_return: float  #: sum of the rewards
    length: int  #: number of env steps


@dataclass
class DriverCounts:
    """Counts of episodes and env steps."""

    episodes: list[EpisodeEnd] = field(default_factory=list)  #: the whole ones, in the order in which they ended
    duration_s: float = 0.0  #: from beginning to end
    failures: list[Exception] = field(default_factory=list)  #: why environments stopped early


class GymTraining(TrainingBase):
    """Plays one environment.

    Args:
        env: an environment that applies its time limits itself; the caller closes it.
        agent: a proxy, not connected.
        seed: seed of the first episode.
        on_episode: called with return and length of every whole episode.
        options: further arguments of `TrainingBase`.
    """

    config_file = None

    def __init__(
        self,
        env: Env,
        agent: AgentProxy,
        *,
        seed: int | None = None,
        on_episode: Callable[[float, int], None] | None = None,
        **options: Any,
    ) -> None:
        # Without a number of episodes, it plays until it is stopped.
        super().__init__((), agent=agent, **{"infinite_run": options.get("max_episodes") is None, **options})
        self._env = env
        self._seed = seed
        self._on_episode = on_episode

    def episode(self, number: int) -> float:
        """Play one episode; returns the sum of its rewards. Raises `StoppedError`, or `AgentProxyException`."""
        obs, _ = self._env.reset(seed=self._seed)
        self._seed = None
        action = self.agent.update(reward=None, state=obs)
        total, length, is_over = 0.0, 0, False
        while not is_over:
            if self._stop.is_set():
                raise StoppedError("the driver was stopped in the middle of an episode")
            obs, reward, terminated, truncated, info = self._env.step(to_env_action(self._env.action_space, action))
            total += float(reward)
            length += 1
            is_over = bool(terminated or truncated)
            # Where both are true, nothing would have followed: no bootstrap.
            action = self.agent.update(
                float(reward),
                obs,
                terminal=is_over,
                truncated=bool(truncated) and not bool(terminated),
                **({EXECUTED_ACTION: info[EXECUTED_ACTION]} if EXECUTED_ACTION in info else {}),
            )
        if self._on_episode is not None:
            self._on_episode(total, length)
        return total


def run_envs(
    make_envs: Sequence[Callable[[], Env]],
    options: DriverOptions,
    *,
    stop: threading.Event | None = None,
    on_episode: Callable[[EpisodeEnd], None] | None = None,
) -> DriverCounts:
    """Run environments until their episodes are played, one of them fails, or `stop` is set; blocks.

    Args:
        make_envs: each makes one environment, in the thread that will use it.
        options: see there.
        stop: set it to end all of them in the middle of their episodes.
        on_episode: called in the environments' threads, one at a time.
    """
    stop = stop or threading.Event()
    counts, lock, number = DriverCounts(), threading.Lock(), len(make_envs)
    children = [None] * number if options.seed is None else np.random.SeedSequence(options.seed).spawn(number)
    seeds = [None if child is None else int(child.generate_state(1)[0]) for child in children]

    def play(index: int) -> None:
        total = options.episodes
        # A share for each: taking turns instead would favor short episodes.
        share = None if total is None else total // number + (index < total % number)
        if share == 0:
            return

        def finish(episode_return: float, length: int) -> None:
            end = EpisodeEnd(index, episode_return, length)
            with lock:
                counts.episodes.append(end)
                if on_episode is not None:
                    on_episode(end)

        try:
            failure: Exception | None = _play(make_envs[index], options, seeds[index], share, stop, finish)
        except Exception as error:
            failure = error
        if failure is not None:
            with lock:
                counts.failures.append(failure)
            stop.set()

    started = time.monotonic()
    threads = [
        threading.Thread(target=play, args=(index,), name=f"rlx-client/env-{index}", daemon=True)
        for index in range(number)
    ]
    for thread in threads:
        thread.start()
    _join(threads, stop)
    counts.duration_s = time.monotonic() - started
    return counts


def to_env_action(space: gymnasium.Space[Any], action: Any) -> Any:
    """Turn an action as it came (numbers, lists, arrays, dicts) into an environment's, or raise `EnvError`."""
    try:
        if isinstance(space, gymnasium.spaces.Discrete):
            return int(np.asarray(action).reshape(()))
        if isinstance(space, gymnasium.spaces.Dict):
            return {key: to_env_action(child, action[key]) for key, child in space.spaces.items()}
        if isinstance(space, gymnasium.spaces.Tuple):
            return tuple(to_env_action(child, part) for child, part in zip(space.spaces, action, strict=True))
        return np.asarray(action, space.dtype).reshape(space.shape or ())
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise EnvError(f"the server's action {action!r:.80} does not fit into {space}: {error}") from error


def _play(
    make_env: Callable[[], Env],
    options: DriverOptions,
    seed: int | None,
    max_episodes: int | None,
    stop: threading.Event,
    on_episode: Callable[[float, int], None],
) -> AgentProxyException | None:
    """Play one environment's episodes; returns why it stopped early, if it did."""
    agent = AgentProxy(
        options.server,
        timeout_s=options.timeout_s,
        token=options.token,
        tls_ca=options.tls_ca,
        tls_cert=options.tls_cert,
        tls_key=options.tls_key,
    )
    env = make_env()
    try:
        training = GymTraining(
            env,
            agent,
            seed=seed,
            on_episode=on_episode,
            exploit=options.exploit,
            max_episodes=max_episodes or 0,
            infinite_run=max_episodes is None,
            attempts=options.attempts,
            stop=stop,
        )
        training.run()
        return training.failure
    except StoppedError:
        return None
    finally:
        env.close()


def _join(threads: Sequence[threading.Thread], stop: threading.Event) -> None:
    """Wait until all threads have ended; those that ignore `stop` are abandoned."""
    stopped_s: float | None = None
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(_JOIN_INTERVAL_S / len(threads))
        if stop.is_set():
            stopped_s = stopped_s or time.monotonic()
            if time.monotonic() - stopped_s > _CLOSE_TIMEOUT_S:
                alive = [thread.name for thread in threads if thread.is_alive()]
                logger.warning("still running after %g s: %s", _CLOSE_TIMEOUT_S, ", ".join(alive))
                return
