"""`surreal watch`: play the current policy of a run, on any machine that reaches its Redis.

The run does not notice it: it only reads the newest parameters between two episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import NamedTuple

import numpy as np

from surreal.base.errors import RedisUnavailableError
from surreal.config import Config, add_python_path
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.parameters.listener import TorchListener
from surreal.run.build.acting import build_evaluator, build_greedy_agent, build_listener, build_model
from surreal.run.build.environments import env_spaces
from surreal.run.evaluation import EpisodeScore
from surreal.run.process import registry
from surreal.run.process.finding import make_client
from surreal.run.process.progress import read_progress
from surreal.run.view.play import EpisodeDisplay

#: Interval of looking for the first parameters, and longest wait for Redis between two episodes, s.
_POLL_S, _TIMEOUT_S = 0.2, 5.0


class Watched(NamedTuple):
    """An episode that was played."""

    number: int  #: from 0
    version: int  #: of the parameters, the same from its first step to its last
    global_step: int  #: of the run, when it published them
    score: EpisodeScore


class Watcher:
    """Plays episodes with a run's newest parameters, until there are enough or the run has ended.

        watcher = Watcher(client, config, EpisodeDisplay(show=True), rng=rng)
        for watched in watcher.episodes(10, wait=time.sleep):
            print(watched.version, watched.score.episode_return)

    Attributes:
        ending: why there are no more episodes; "" while the run continues.
    """

    def __init__(self, client: RedisClient, config: Config, view: EpisodeDisplay, *, rng: np.random.Generator) -> None:
        self.ending = ""
        self._client, self._config, self._view, self._rng = client, config, view, rng

    def episodes(
        self, count: int | None = None, *, on_wait: Callable[[], object] | None = None, wait: Callable[[float], object]
    ) -> Iterator[Watched]:
        """Play episodes one by one; `on_wait` is called once if there are no parameters yet, and `wait` sleeps.

        Raises:
            ContractError: the model differs from the run's.
            EnvError: the environment cannot be made, or not be shown in this way.
            RedisUnavailableError: Redis has never answered.
        """
        config = self._config
        add_python_path(config.python_path)
        with ExitStack() as stack:
            env = self._view.make_env(config, stack, name="watch")
            spaces = env_spaces(env)
            model = build_model(config, spaces)
            agent = stack.enter_context(closing(build_greedy_agent(config, model, spaces, rng=self._rng)))
            client, address = self._client, config.redis.parameter_address
            if address is not None:
                client = stack.enter_context(make_client(address, client.run))
                client.check_server(timeout_s=_TIMEOUT_S)
            listener = stack.enter_context(closing(build_listener(config, client, model)))
            evaluator = build_evaluator(config, agent, [env], rng=self._rng)
            number = 0
            while (count is None or number < count) and self._update(listener, on_wait, wait):
                if self._view.screen is not None:
                    self._view.screen.title = f"{self._client.run}  version {model.version}"
                version, progress = model.version, read_progress(listener.message)
                (score,) = evaluator.play(1)
                yield Watched(number, version, progress.get("global_step", 0), score)
                number += 1

    def _update(
        self, listener: TorchListener, on_wait: Callable[[], object] | None, wait: Callable[[float], object]
    ) -> bool:
        """Load the newest parameters, and wait for the first; returns whether to continue."""
        is_first = listener.version == 0
        try:
            while True:
                listener.update_once(timeout_s=_TIMEOUT_S)
                # Read last, so that the final parameters of an ending run are shown once.
                self.ending = self._client.retry(
                    lambda: registry.stop_reason(self._client), what="look at the run", timeout_s=_TIMEOUT_S
                )
                if listener.version or self.ending:
                    return bool(listener.version) and (is_first or not self.ending)
                if on_wait is not None:
                    on_wait()
                    on_wait = None
                wait(_POLL_S)
        except RedisUnavailableError as error:
            if is_first:
                raise
            self.ending = f"{error}; the run has ended, or cannot be reached from here"
            return False
