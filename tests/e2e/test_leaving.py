"""An agent that is told to go, as by an autoscaler that wants fewer of them: it drains, and the run goes on."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.reading.pointer_queue import PointerQueue
from surreal.distributed.experience.stream import Stream

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

#: Chunks far larger than what an agent has when it goes, and a limiter that keeps it waiting for credit.
SETTINGS = """
env: {id: "numbered:Numbered-v0", num_envs: 3}
model: {args: {hidden_sizes: [8]}}
agent: {count: 2, exploration: 0.5}
learner: {batch_size: 32}
replay: {capacity: 1000000, start_size: 200, samples_per_insert: 32}
sender: {chunk_steps: 48, max_delay_s: 5.0}
broadcast: {interval_updates: 20}
eval: {enabled: false}
"""


def test_an_agent_that_goes_leaves_every_step_it_took_and_nobody_who_waits_for_it(
    workplace: Workplace, redis_server: Any, run_id: str
) -> None:
    (workplace.folder / "runs").mkdir()
    shutil.copy(Path(__file__).with_name("numbered.py"), workplace.folder / "runs")
    (workplace.folder / "runs" / "app.yaml").write_text(SETTINGS)
    address = redis_server.address
    common = ("runs/app.yaml", "--run", run_id, "--redis", address)
    learner = workplace.start("learner", *common, "--run-dir", "runs/learner")
    stays, goes = (workplace.start("agent", *common, "--index", str(index)) for index in range(2))

    def metrics_of(name: str) -> dict[str, float]:
        found = workplace.status(run_id, address)["processes"] if workplace.knows(run_id, address) else []
        return next((each["metrics"] for each in found if each["name"] == name), {})

    workplace.wait_for(lambda: metrics_of("agent-1").get("sender/wait_s_total"), "a wait of the agent for credit")
    acknowledged = metrics_of("agent-1")["sender/steps_total"]
    goes.process.terminate()
    assert goes.wait() == 143, goes.output
    # Nobody takes it for one that was killed: whoever scales knows at once.
    assert metrics_of("agent-1") == {}
    before = workplace.status(run_id, address)
    workplace.wait_for(lambda: _has_gone_on(before, workplace.status(run_id, address)), "that the others go on")
    assert workplace.run("stop", run_id, "--redis", address)[0] == 0
    for command in (stays, learner):
        assert command.wait() == 0, command.output
    left, stayed = sorted(_counts(address, run_id).values(), key=lambda counts: sum(map(len, counts.values())))
    # With the chunk that had to wait, which goes without credit at the end.
    assert sum(map(len, left.values())) > acknowledged
    for counts in (left, stayed):
        for env, numbers in counts.items():
            # The last observation of an episode is shown, but no step begins in it.
            assert numbers == [each for each in range(numbers[-1] + 1) if each % (8 + env) != 7 + env]


def _has_gone_on(before: dict[str, Any], now: dict[str, Any]) -> bool:
    return all(now[name] > before[name] + 200 for name in ("env_steps", "updates"))


def _counts(address: str, run: str) -> dict[int, dict[int, list[int]]]:
    """Numbers of the steps in the stream, by the process that took them and its environment."""
    found: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    with RedisClient(address, run=run) as client:
        queue = PointerQueue(Stream(client, 0))
        while queue.enqueue_step():
            while (chunk := queue.dequeue()) is not None:
                numbers = (chunk.leaves[0][chunk.obs_row[chunk.own]].astype(np.float64) * 2**24).round().astype(int)
                for process, env, count in numbers.tolist():
                    found[process][env].append(count)
    return found
