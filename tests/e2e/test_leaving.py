"""An agent that is told to go, as by an autoscaler that wants fewer of them: it drains, and the run goes on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.numbered_steps import assert_no_gap, read_numbered_steps

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
    found = read_numbered_steps(address, run_id)
    left, _ = sorted(sum(map(len, environments.values())) for environments in found.values())
    assert left > acknowledged  # with the chunk that had to wait, which goes without credit at the end
    assert_no_gap(found)


def _has_gone_on(before: dict[str, Any], now: dict[str, Any]) -> bool:
    return all(now[name] > before[name] + 200 for name in ("env_steps", "updates"))
