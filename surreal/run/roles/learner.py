"""The learner process: draws batches from the replay, improves the model, broadcasts it, and writes checkpoints.

    python -m surreal.run.roles.learner cartpole-dqn --run my-run --redis 127.0.0.1:6379

It also runs the collector, which brings logs and metrics of all processes into the run's folder.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack

from surreal.distributed.telemetry.collector import Collector
from surreal.run.lockstep.check import try_update
from surreal.run.lockstep.session import LockstepSession
from surreal.run.process.arguments import parse
from surreal.run.process.role import RoleProcess, run_role
from surreal.run.process.roles import LEARNER
from surreal.run.process.run_folder import RunFolder
from surreal.run.roles.eval import EvaluationSession
from surreal.run.session.learner import LearnerSession
from surreal.run.session.learner_process import set_torch_threads
from surreal.run.session.offline import run_offline_learner
from surreal.run.session.ranks.leading import follow_first_rank, lead


def body(process: RoleProcess) -> None:
    """Learn until the run ends."""
    set_torch_threads(process.config.learner)
    if process.rank:
        follow_first_rank(process)
        return
    # A launcher has checked it, as has an earlier life of this run. A debugger should see the first error itself.
    is_checked = process.arguments.supervised or RunFolder(process.run_dir).config_path.exists()
    if not is_checked and not process.arguments.debug:
        try_update(process.config)

    def make(stack: ExitStack, collector: Collector) -> LearnerSession | LockstepSession:
        if not process.config.run.deterministic:
            return LearnerSession(process, stack, process.config, collector=collector)
        score = EvaluationSession(process, stack).score_newest if process.config.eval.enabled else lambda: False
        return LockstepSession(process, stack, score)

    lead(process, make)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a learner process; returns its exit code."""
    arguments = parse(LEARNER, argv)
    if arguments.offline is None or arguments.supervised:  # a launcher has prepared everything
        return run_role(LEARNER, body, arguments)
    return run_offline_learner(arguments, lambda final: run_role(LEARNER, body, final))


if __name__ == "__main__":
    sys.exit(main())
