"""The samples-per-insert limiter between real processes: either side much too fast, and killed in between.

Redis has both counts, of the env steps inserted and of the transitions drawn, and changes each together with what
depends on it. So the band can be looked at from outside, at any moment, without allowance.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest
from kill_processes import Killable, act_limited, killable, learn_limited
from naive_replay import DEADLINE_S

RATIO, START_SIZE, CHUNK_STEPS, BATCH_SIZE, AGENTS = 4.0, 100, 16, 16, 2
#: The least that the configuration allows: a chunk of each agent.
TOLERANCE = RATIO * CHUNK_STEPS * AGENTS
OPTIONS = {
    "batch_size": BATCH_SIZE, "capacity": 500, "start_size": START_SIZE, "samples_per_insert": RATIO,
    "samples_per_insert_tolerance": TOLERANCE, "lease_s": 0.3, "prefetch": 2,
}  # fmt: skip


class Pace(NamedTuple):
    """Pauses of each side, s: without the limiter one would be more than ten times too fast for the ratio."""

    agent_s: float  #: after each chunk
    learner_s: float  #: after each batch


class Balance:
    """Both counts, as Redis has them, and as the learners tell.

    Attributes:
        inserted: env steps.
        heard: transitions that learners were handed.
        edges: who may not go on: "agents", "learner".
    """

    def __init__(self, run: Any) -> None:
        self._run = run
        self.inserted = self.drawn = self.heard = 0
        self.edges: set[str] = set()

    def look(self) -> None:
        """Read the counts, and check that they lie in the band."""
        meta = self._run.client.shard_keys().meta
        self.inserted, self.drawn = (int(n or 0) for n in self._run.client.redis.hmget(meta, "steps", "samples"))
        if self.inserted < START_SIZE:
            assert self.drawn == 0
            return
        middle = RATIO * (self.inserted - START_SIZE)
        assert middle - TOLERANCE <= self.drawn <= middle + TOLERANCE
        is_learner_held = self.drawn + BATCH_SIZE > middle + TOLERANCE
        are_agents_held = self.drawn - RATIO * CHUNK_STEPS < middle - TOLERANCE
        self.edges = ({"learner"} if is_learner_held else set()) | ({"agents"} if are_agents_held else set())


@pytest.mark.parametrize(
    ("pace", "held"),
    [(Pace(agent_s=0.0, learner_s=0.01), "agents"), (Pace(agent_s=0.05, learner_s=0.0), "learner")],
    ids=["agents too fast", "agents too slow"],
)
def test_the_ratio_is_held_whoever_is_too_fast_or_killed(run: Any, pace: Pace, held: str) -> None:
    balance, kills = Balance(run), 0
    with ExitStack() as stack:

        def new_learner(checkpoint: dict[str, Any] | None = None) -> Killable:
            args = (run.address, run.run_id, pace.learner_s, checkpoint, OPTIONS)
            return stack.enter_context(killable(learn_limited, *args))

        def new_agent(number: int) -> Killable:
            args = (run.address, run.run_id, number * 1_000_000, pace.agent_s, CHUNK_STEPS)
            return stack.enter_context(killable(act_limited, *args))

        learner, agents = new_learner(), [new_agent(number) for number in range(AGENTS)]
        deadline_s = time.monotonic() + 3 * DEADLINE_S
        for goal in (400, 800, 1200, 1600, 2000):
            edges: set[str] = set()
            while balance.inserted < goal or held not in edges:
                assert time.monotonic() < deadline_s, f"{balance.inserted} of {goal} steps, {balance.drawn} samples"
                balance.look()
                balance.heard += sum(learner.heard())
                # Whoever was killed has left the other one at its edge, from which it comes back first.
                edges |= balance.edges if balance.inserted >= goal - 200 else set()
            # In turn: a learner, whose checkpoint is old, and an agent in the middle of what it does.
            if goal % 800:
                balance.heard += sum(learner.kill())
                learner, kills = new_learner({"samples": 16, "global_step": 104}), kills + 1
            else:
                agents.pop(0).kill()
                agents.append(new_agent(goal))
        balance.heard += sum(learner.kill())
    middle = RATIO * (balance.inserted - START_SIZE)
    # Of each learner that was killed, a few batches were drawn and not counted, or counted and not handed out.
    assert balance.heard == pytest.approx(middle, abs=TOLERANCE + (kills + 1) * TOLERANCE)
    assert balance.heard / middle == pytest.approx(1.0, abs=0.1)
