"""The checks of a configuration's environment, one after the other, in a process of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from surreal.base.errors import SurrealError
from surreal.plugins.doctor.environment.checker import checker
from surreal.plugins.doctor.environment.faults import NOT_MADE
from surreal.plugins.doctor.environment.leaking import leaking
from surreal.plugins.doctor.environment.play import Budget, Env, Watcher, play
from surreal.plugins.doctor.environment.repeating import repeating
from surreal.plugins.doctor.environment.watchers.ends import EndWatcher
from surreal.plugins.doctor.environment.watchers.masks import MaskWatcher
from surreal.plugins.doctor.environment.watchers.observations import ObservationWatcher
from surreal.plugins.doctor.environment.watchers.rewards import RewardWatcher
from surreal.plugins.doctor.environment.watchers.speed import SpeedWatcher
from surreal.plugins.doctor.frame.check import Check
from surreal.plugins.doctor.frame.finding import Finding


class Times(NamedTuple):
    """How long each check may play, s."""

    play_s: float
    leak_s: float  #: 0: not looked for
    #: beyond that, for what takes as long as it takes: one more reset
    patience_s: float = 20.0


LONG = Times(4.0, 4.0)
QUICK = Times(1.0, 0.0)


def examine_environment(make: Callable[[], Env], times: Times) -> Iterator[Check]:
    """Give the checks; the environment is made by the first and closed after the last.

    Args:
        make: makes it, with the wrappers of training.
        times: how long to play.
    """
    made: list[Env] = []

    def begin() -> Iterator[Finding]:
        try:
            made.append(make())
        except SurrealError as error:
            yield NOT_MADE.found(str(error))

    patience_s = times.patience_s
    yield Check("making the environment", begin, 30.0 + patience_s)
    if not made:
        return
    env = made[0]
    budget = Budget(times.play_s)
    yield Check("playing episodes", lambda: play(env, watchers_of(env), budget), times.play_s + patience_s)
    yield Check("repeating an episode", partial(repeating, env), patience_s)
    if times.leak_s:
        yield Check("looking for leaks", partial(leaking, env, times.leak_s), 2 * times.leak_s + patience_s)
    yield Check("gymnasium's checker", partial(checker, env), patience_s)
    with suppress(Exception):  # nobody asks for more of it
        env.close()


def watchers_of(env: Env) -> list[Watcher]:
    """Give all watchers for an environment."""
    return [
        ObservationWatcher(env.observation_space),
        RewardWatcher(),
        MaskWatcher(env.action_space),
        EndWatcher(),
        SpeedWatcher(),
    ]
