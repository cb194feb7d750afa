"""An agent process: acts in its environments, sends experience, follows the parameters. It does no learning.

With `learner.gradients: agents`, it computes gradients from its own experience, and sends these; see `GradientSession`.

    python -m surreal.run.roles.agent cartpole-dqn --run my-run --redis 127.0.0.1:6379 --index 0

The loop is `surreal.agent.AgentLoop`, put together by `ActingSession`. A learner that is away only makes it wait.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Literal

from surreal.base.errors import StoppedError
from surreal.envs.pools.rate_pool import RatePool
from surreal.run.build.acting import build_opponents, build_rounds
from surreal.run.build.environments import Spaces, build_pool
from surreal.run.lockstep.gradient_agent import GradientSession
from surreal.run.process.arguments import parse
from surreal.run.process.interrupts import paused_by_signals
from surreal.run.process.role import RoleProcess, run_role
from surreal.run.process.roles import AGENT
from surreal.run.session.acting import ActingSession

logger = logging.getLogger("surreal.run.roles.agent")  # __name__ is __main__ in a separate process


def body(process: RoleProcess) -> None:
    """Act until the run ends."""
    with ExitStack() as stack:
        if process.config.has_parameter_servers:
            computing = GradientSession(process, stack)
            with suppress(StoppedError):
                computing.run()
            logger.info("acted for %d env steps and %d episodes", computing.env_steps, computing.episodes)
            return
        rng = process.rng(1)
        opponents = build_opponents(process.config, process.parameter_client, index=process.index, rng=rng)
        if opponents is not None:
            stack.callback(opponents.close)
        attributes = process.attributes.follow(stack)
        pool = build_pool(process.config, index=process.index, opponents=opponents, attributes=attributes)
        stack.callback(pool.close)
        if isinstance(pool, RatePool):
            stack.enter_context(paused_by_signals(pool.pause, pool.resume))
        spaces = Spaces(pool.obs_spec, pool.action_space)
        rounds = build_rounds(process.config, process.should_stop)
        # A full replay must not stop an agent that keeps time.
        on_full: Literal["drop"] | None = None if process.config.env.rate_hz is None else "drop"
        session = ActingSession(process, stack, pool, spaces, rounds=rounds, on_full=on_full)
        session.run()
        logger.info("acted for %d env steps and %d episodes", session.loop.env_steps, session.loop.episodes)


def main(argv: Sequence[str] | None = None) -> int:
    """Run an agent process; returns its exit code."""
    return run_role(AGENT, body, parse(AGENT, argv))


if __name__ == "__main__":
    sys.exit(main())
