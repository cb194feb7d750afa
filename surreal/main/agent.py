"""An agent process: acts in its environments, sends experience, follows the parameters. It does no learning.

    python -m surreal.main.agent cartpole-dqn --run my-run --redis 127.0.0.1:6379 --index 0

The loop is `surreal.agent.AgentLoop`; this module puts it together. A learner that is away only makes it wait.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from surreal.agent import AgentLoop
from surreal.main.build.acting import build_agent, build_listener, build_model, build_sender, restore_model
from surreal.main.build.environments import Spaces, build_pool
from surreal.main.process.role import RoleProcess, run_role
from surreal.main.process.roles import AGENT
from surreal.metrics import RateMeter

logger = logging.getLogger("surreal.main.agent")  # __name__ is __main__ in a process of its own

#: How long to wait for the first parameters before acting without, s: a learner may be started later.
FIRST_PARAMETERS_S = 5.0


def body(process: RoleProcess) -> None:
    """Act until the run ends."""
    config, telemetry = process.config, process.telemetry
    with ExitStack() as stack:
        pool = build_pool(config, index=process.index)
        stack.callback(pool.close)
        spaces = Spaces(pool.obs_spec, pool.action_space)
        model = build_model(config, spaces)
        restore_model(config, model)
        agent = build_agent(config, model, spaces, index=process.index, rng=process.rng())
        stack.callback(agent.close)
        listener = build_listener(config, process.parameter_client, model)
        stack.callback(listener.close)
        listener.run_listener_thread()
        if not listener.wait_for_first(FIRST_PARAMETERS_S, process.stop):
            logger.info("no parameters yet; acting without")
        sender = build_sender(config, process.replay, pool, process.stop, index=process.index)
        stack.callback(sender.close)
        loop = AgentLoop(pool, agent, sender, on_episode=lambda score, length, _: telemetry.episode(score, length))
        rate = RateMeter("agent/steps_per_s")

        def speed() -> dict[str, float]:
            rate.total = loop.env_steps
            return rate.metrics()

        for source in (loop.metrics, speed, pool.metrics, sender.metrics, listener.metrics):
            telemetry.add_source(source)
        telemetry.watch(version=lambda: listener.version, global_step=lambda: sender.global_step)
        limit = config.run.max_env_steps
        while not process.should_stop():
            if limit is not None and sender.global_step >= limit:
                logger.info("the run has its %d env steps", limit)
                break
            loop.step()
            listener.check()
        logger.info("acted for %d env steps and %d episodes", loop.env_steps, loop.episodes)


def main(argv: Sequence[str] | None = None) -> int:
    """Run an agent process; returns its exit code."""
    return run_role(AGENT, body, argv, __doc__)


if __name__ == "__main__":
    sys.exit(main())
