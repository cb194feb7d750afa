"""`follow_first_rank`: what a rank other than rank 0 does: updates, when all ranks do one, and nothing beside them."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any

from surreal.errors import DivergedError, StoppedError
from surreal.learner import Learner
from surreal.main.build.acting import build_model
from surreal.main.build.environments import build_spaces
from surreal.main.build.learning import build_learner, build_replay
from surreal.main.process.role import RoleProcess
from surreal.main.session.folder.priorities import PrioritiesSaver
from surreal.main.session.folder.torch_cache import keep_torch_out_of_tmp
from surreal.main.session.ranks.group import RankGroup, join_ranks
from surreal.main.session.ranks.replay import RankReplay
from surreal.replay import Replay

_DEQUEUE_TIMEOUT_S = 0.2


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
    batches = RankReplay(group.ranks, replay, stop=process.stop.is_set)
    learner = build_learner(config, model, batches)
    batches.attach(learner)
    priorities = PrioritiesSaver(replay, process.run_dir, rank=rank)
    priorities.load()
    process.telemetry.add_source(learner.metrics)
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
