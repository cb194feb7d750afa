"""`follow_first_rank`: what a rank other than rank 0 does: updates, when all ranks do one, and nothing next to them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any

from surreal.base.errors import DivergedError, StoppedError
from surreal.learner import Learner
from surreal.replay import Replay
from surreal.run.build.acting import build_model
from surreal.run.build.environments import build_spaces
from surreal.run.build.learning import build_learner, build_replay
from surreal.run.process.role import RoleProcess
from surreal.run.session.checkpointing import PrioritiesSaver
from surreal.run.session.learner_process import keep_torch_out_of_tmp
from surreal.run.session.ranks.group import RankGroup, join_ranks
from surreal.run.session.ranks.replay import RankReplay

_DEQUEUE_TIMEOUT_S = 0.2
#: How long rank 0 may take to hear what all processes of the run are told, s.
_OWN_END_S = 5.0


class OwnEnd:
    """Detects that this process was told to end and rank 0 was not, so that rank 0 can end all ranks with the reason.

    Args:
        stop: set where this process is to end.
        clock: seconds, monotonic.
    """

    def __init__(self, stop: threading.Event, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stop = stop
        self._clock = clock
        self._since_s: float | None = None

    def __call__(self) -> bool:
        if not self._stop.is_set():
            return False
        if self._since_s is None:
            self._since_s = self._clock()
        return self._clock() - self._since_s >= _OWN_END_S


def follow_first_rank(process: RoleProcess) -> None:
    """Learn with the other ranks until they are to end; rank 0 publishes, and writes what is kept.

    Raises:
        RankError: another rank is gone.
    """
    with ExitStack() as stack:
        keep_torch_out_of_tmp(process.run_dir, stack)
        group = join_ranks(process, stack)
        if group is not None:
            with group.explaining():
                _follow(process, group, stack)


def _follow(process: RoleProcess, group: RankGroup, stack: ExitStack) -> None:
    config, rank = process.config, process.rank
    model = build_model(config, build_spaces(config))
    replay: Replay[Any] = build_replay(config, process.replay, seed=int(process.rng().integers(2**31)), rank=rank)
    stack.callback(replay.join, 5.0)
    stack.callback(replay.stop)
    batches = RankReplay(group.ranks, replay, stop=OwnEnd(process.stop))
    learner = build_learner(config, model, batches, rank=rank)
    batches.attach(learner)
    priorities = PrioritiesSaver(replay, process.run_dir, rank=rank)
    priorities.load()
    process.telemetry.add_source(learner.metrics)
    process.telemetry.add_readings(learner.readings.take)
    process.telemetry.add_source(replay.metrics)
    replay.start_threads()
    with suppress(StoppedError):
        _learn(process, batches, learner, priorities)
    replay.stop()
    priorities.save()


def _learn(process: RoleProcess, batches: RankReplay, learner: Learner, priorities: PrioritiesSaver) -> None:
    i = 0
    while True:
        process.turn()
        batch = batches.dequeue(_DEQUEUE_TIMEOUT_S)
        if batch is not None:
            try:
                learner.optimize(i, batch)
            except DivergedError as error:
                batches.after(error)
            i += 1
        priorities.save_if_due()
