"""A parameter server: takes the learner's place where agents compute the gradients (`learner.gradients: agents`).

    python -m surreal.run.roles.parameter_server cartpole-a3c --run my-run --redis 127.0.0.1:6379

It combines what agents push, steps the one optimizer, publishes after each update, and has around that what the
learner has: checkpoints, limits, the run's folder. Its own work is `ServerSession.update`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Literal

import numpy as np

from surreal.base.contracts import BatchIntake, BatchSource
from surreal.base.errors import DivergedError, GroupChangedError
from surreal.base.pytorch import Module
from surreal.base.values import checked_count
from surreal.distributed.gradients.group import ServerGroup
from surreal.distributed.gradients.queue import Gradient, GradientQueue
from surreal.distributed.parameters.parts import PolicyPart
from surreal.distributed.telemetry.collector import Collector
from surreal.learner import Learner
from surreal.learner.parameter_server.server import ParameterServer
from surreal.model.filters import FilterCounts
from surreal.run.build import learning
from surreal.run.build.lockstep import server_config
from surreal.run.lockstep.check import try_update
from surreal.run.process.arguments import parse
from surreal.run.process.role import RoleProcess, run_role
from surreal.run.process.roles import PARAMETER_SERVER
from surreal.run.session.learner import LearnerSession
from surreal.run.session.ranks.leading import lead, work

logger = logging.getLogger("surreal.run.roles.parameter_server")  # __name__ is __main__ in a separate process

#: Number of senders whose acknowledgements are published; those that were silent for longest are left out.
_MOST_SENDERS = 1024


class GradientIntake:
    """The gradients of all agents, in the order in which they were pushed, as an intake of updates."""

    is_stepped = False
    stream_mode: Literal["window", "consume"] = "window"
    is_starved = True  #: where it has no gradient, none has come

    def __init__(self, queue: GradientQueue, server: ParameterServer, rng: np.random.Generator) -> None:
        self.rng = rng
        self.learned: Mapping[str, int] = {}
        self._queue = queue
        self._server = server

    @property
    def global_step(self) -> int:
        return self._queue.global_step

    def take_in(self) -> None:
        """Leave the gradients in Redis until `next_batch`."""

    def next_batch(self, timeout_s: float) -> Gradient | None:
        return self._queue.take(timeout_s)

    def commit(self, version: int | None = None) -> None:
        """Report the published version to agents, and to rules that use former parameters."""
        if version is not None:
            self._queue.tell_version(version)
            self._server.published(version)

    def stop(self) -> None:
        """There is nothing to stop: a gradient is taken out only to be applied."""

    def join(self, timeout_s: float = 5.0) -> bool:
        """Drop the connection."""
        self._queue.close()
        return True

    def state_dict(self) -> dict[str, Any]:
        return {"global_step": self.global_step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue counting from a checkpoint, where Redis was emptied."""
        self._queue.on_global_step(checked_count(state["global_step"]))

    def metrics(self) -> dict[str, float]:
        return {**self._queue.metrics(), "replay/env_steps_total": float(self.global_step)}


class ServerSession(LearnerSession):
    """The session of a learner, around the steps of a parameter server.

    Several go in step, each with a part of the model. When one restarts, all continue together from the newest
    parameters that all of them have published; each keeps its optimizers, or has them from its own checkpoint.
    """

    def __init__(self, process: RoleProcess, stack: ExitStack, collector: Collector | None) -> None:
        self._applied: dict[str, int] = {}  # number of the last gradient of each sender
        super().__init__(process, stack, server_config(process.config), collector=collector)
        self.publishing.applied = lambda: self._applied

    def make(self, model: Module, stack: ExitStack) -> tuple[Learner, BatchSource, BatchIntake]:
        config, index, shards = self.config, self.process.index, self.process.replay
        learner = learning.build_gradient_learner(config, model, None)
        learner.become_ready()
        self._servers = group = learning.build_server_group(config, shards, index=index)
        queue = learning.build_gradient_queue(config, shards, index=index, group=group, stop=self.process.stop)
        queue.expect(learner.parameter_groups(), FilterCounts(model).groups())
        self._server = learning.build_parameter_server(config, learner, index=index, group=group)
        if group is not None:
            self.part = PolicyPart(index, config.num_servers, self._server.published_names())
        intake = GradientIntake(queue, self._server, self.process.rng())
        return learner, intake, intake

    def settle(self, *, has_checkpoint: bool) -> None:
        """Continue from the checkpoint; several servers continue from their last publication, which is consistent."""
        if self._servers is None:
            super().settle(has_checkpoint=has_checkpoint)
        else:
            self._join(self._servers, is_new=True)

    def begin(self) -> None:
        super().begin()
        self.process.telemetry.add_source(self._server.metrics)

    def run(self) -> None:
        """Step until the run ends; as one of several, join the others again when one of them has restarted."""
        while True:
            try:
                return super().run()
            except GroupChangedError as error:
                if self._servers is None:
                    raise
                logger.warning("%s; all servers continue from the newest parameters", error)
                self._join(self._servers, is_new=False)
                self.publishing.publish()

    def update(self, i: int, batch: Any) -> bool:
        gradient: Gradient = batch
        has_stepped = self._server.step(gradient)
        self._applied.pop(gradient.sender, None)
        self._applied[gradient.sender] = gradient.updates  # which comes last
        if len(self._applied) > _MOST_SENDERS:
            del self._applied[next(iter(self._applied))]
        return has_stepped

    def go_back(self, error: DivergedError) -> None:
        """Restore a good state; gradients of the bad one are dropped."""
        self._server.reset()
        super().go_back(error)

    def _join(self, group: ServerGroup, *, is_new: bool) -> None:
        self._server.reset()
        formation = group.join([], self.broadcaster.newest_version(), is_new=is_new, stop=self.process.stop)
        self.publishing.take_over()  # only now, when no process publishes
        self.broadcaster.propose(formation.version)


def body(process: RoleProcess) -> None:
    """Step down gradients until the run ends; the first of several servers sees to the run's folder."""
    if not process.arguments.supervised:  # the launcher has checked it
        try_update(process.config)
    if process.index == 0:
        lead(process, lambda stack, collector: ServerSession(process, stack, collector))
        return
    with ExitStack() as stack:
        session = ServerSession(process, stack, None)
        session.begin()
        work(session)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a parameter server; returns its exit code."""
    return run_role(PARAMETER_SERVER, body, parse(PARAMETER_SERVER, argv))


if __name__ == "__main__":
    sys.exit(main())
