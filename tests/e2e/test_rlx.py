"""RLX as a user starts it: a run with servers and clients, and a saved policy that is served without one."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from surreal.rlx import AgentProxy

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace


def test_run_with_a_server_and_clients_and_its_policy_served_afterwards(
    workplace: Workplace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    token = tmp_path_factory.mktemp("secret") / "token"
    token.write_text("s3cret\n")
    options = ["--set", "run.max_env_steps=4000", "--set", "rlx.clients=2", "--set", "rlx.servers=2"]
    options += ["--set", f"rlx.token_file={token}", "--set", "run.stop_at_return=null"]
    command = workplace.start("run", "cartpole-rlx", *workplace.fast_eval, *options)
    run_dir = workplace.run_dir()
    assert command.wait() == 0, command.output
    assert re.search(r"environments connect to rlx://127\.0\.0\.1:\d+", command.output)
    result = json.loads((run_dir / "result.json").read_text())
    assert result["status"] == "finished"
    assert result["env_steps"] >= 4000
    assert result["updates"] > 0
    metrics = (run_dir / "metrics.jsonl").read_text()
    assert "rlx/requests_total" in metrics
    assert "episode_reward" in metrics
    assert workplace.processes() == []

    policy = str(run_dir / "eval" / "best.safetensors")
    server = workplace.start("rlx-server", "--checkpoint", policy, "--exploit", "--port", "0", "--demo")
    line = workplace.wait_for(lambda: re.search(r"RLX at (\S+)", server.output), "the address")
    for scheme in ("rlx", "ws"):
        url = f"{scheme}://{line[1]}"
        client = ["rlx-client", "CartPole-v1", "--server", url, "--exploit", "--episodes", "3"]
        code, output = workplace.run(*client)
        assert (code, "the token is missing or wrong" in output) == (1, True), output
        code, output = workplace.run(*client, "--token-file", str(token))
        assert (code, "3 episodes" in output) == (0, True), output
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0, server.output
    workplace.assert_nothing_is_left()


def test_policy_is_not_served_without_saying_that_nothing_is_learned(workplace: Workplace) -> None:
    code, output = workplace.run("rlx-server", "--checkpoint", "none.safetensors")
    assert (code, "add --exploit" in output) == (2, True), output
    code, output = workplace.run("rlx-server", "--checkpoint", "none.safetensors", "--exploit")
    assert (code, output) == (1, "error: checkpoint none.safetensors does not exist\n")


ECHO = """
import numpy as np
from torch import nn, zeros

from surreal.agent import Agent
from surreal.model import Model


class Nothing(Model):
    def __init__(self, action_space):
        super().__init__()
        self.bias = nn.Parameter(zeros(1))

    def forward(self, obs):
        return self.bias


class Reader(Agent):
    def _act(self, obs, explore):
        return np.array([len(str(state)) for state in obs])
"""

RAW = """
env:
  id: Elsewhere
  observation_space: raw
  action_space: {type: discrete, n: 1000}
rlx: {servers: 1, port: 0}
model: {class: parts.Nothing}
agent: {class: parts.Reader, count: 0}
eval: {enabled: false}
"""


def test_agent_of_a_user_takes_states_of_any_form(workplace: Workplace) -> None:
    project = workplace.folder / "project"
    project.mkdir()
    (project / "parts.py").write_text(ECHO)
    (project / "app.yaml").write_text(RAW)
    command = workplace.start("run", str(project / "app.yaml"))
    found = workplace.wait_for(lambda: re.search(r"connect to rlx://(\S+)", command.output), "the address")
    states: list[Any] = ["text", {"a": [1, "x"], "b": None}, [1, [2.5, "y"]], np.zeros((2, 2), np.int64), None, 3]
    with AgentProxy(found[1]) as agent:
        agent.connect(retry=20)
        agent.init()
        for index, state in enumerate(states):
            assert agent.update(0.5 if index else None, state) == len(str(state))
        assert agent.update(2.0, "end", terminal=True) is None
        agent.metrics.histogram("state_sizes", [1, 2, 2, 5])
    workplace.wait_for(lambda: workplace.status()["episode_return"] == 4.5, "the return of the episode")
    command.interrupt()
    command.wait()
    log = "".join(path.read_text() for path in workplace.run_dir().glob("**/*.log*"))
    assert "nothing is recorded" in log
    assert "acted for 6 env steps and 1 episodes" in log
    rows = [json.loads(line) for line in (workplace.run_dir() / "metrics.jsonl").read_text().splitlines()]
    found = [row["histograms"] for row in rows if "histograms" in row]
    assert [content["size"] for content in found[0].values()] == [4]
