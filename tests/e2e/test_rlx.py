"""RLX as a user starts it: a run with servers and clients, and a saved policy that is served without one."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace


def test_run_with_a_server_and_clients_and_its_policy_served_afterwards(workplace: Workplace) -> None:
    options = ["--set", "run.max_env_steps=4000", "--set", "rlx.clients=2", "--set", "rlx.servers=2"]
    command = workplace.start("run", "cartpole-rlx", *workplace.fast_eval, *options)
    run_dir = workplace.run_dir()
    assert command.wait() == 0, command.output
    assert re.search(r"environments connect to rlx://127\.0\.0\.1:\d+", command.output)
    result = json.loads((run_dir / "result.json").read_text())
    assert result["status"] == "finished"
    assert result["env_steps"] >= 4000
    assert result["updates"] > 0
    metrics = (run_dir / "metrics.jsonl").read_text()
    assert "rlx/requests_count" in metrics
    assert "episode_reward" in metrics
    assert workplace.processes() == []

    policy = str(run_dir / "eval" / "best.safetensors")
    server = workplace.start("rlx-server", "--checkpoint", policy, "--exploit", "--port", "0", "--demo")
    line = workplace.wait_for(lambda: re.search(r"RLX at (\S+)", server.output), "the address")
    for scheme in ("rlx", "ws"):
        url = f"{scheme}://{line[1]}"
        code, output = workplace.run("rlx-client", "CartPole-v1", "--server", url, "--exploit", "--episodes", "3")
        assert (code, "3 episodes" in output) == (0, True), output
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0, server.output
    workplace.assert_nothing_is_left()


def test_policy_is_not_served_without_saying_that_nothing_is_learned(workplace: Workplace) -> None:
    code, output = workplace.run("rlx-server", "--checkpoint", "none.safetensors")
    assert (code, "add --exploit" in output) == (2, True), output
    code, output = workplace.run("rlx-server", "--checkpoint", "none.safetensors", "--exploit")
    assert (code, output) == (1, "error: checkpoint none.safetensors does not exist\n")
