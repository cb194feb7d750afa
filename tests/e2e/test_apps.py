"""Apps as a user makes them: from an empty folder to what was learned."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from tests.ports import claim_port

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.conftest import Workplace


def shares(output: str) -> list[tuple[str, list[int]]]:
    """Which program pulled which arm how often, in percent, by lines."""
    lines = re.findall(r"(environment-\d+) \| \d+ pulls (.*)", output)
    return [(name, [int(each) for each in re.findall(r"(\d+)%", line)]) for name, line in lines]


def test_a_new_app_learns_the_best_arm_and_an_edit_of_its_algorithm_acts(workplace: Workplace, tmp_path: Path) -> None:
    code, output = workplace.run("new", "bandit")
    assert (code, "next: cd bandit && surreal run" in output) == (0, True), output
    app = ["-c", "bandit/app.yaml"]
    any_port = ("--set", "rlx.port=0")
    code, output = workplace.run("run", *app, "--run", "first", *any_port)
    assert code == 0, output
    assert "ended: all environments have played their episodes" in output
    assert shares(output)[-1][1][3] >= 75

    code, output = workplace.run("generate", "-a", "pg", *app)
    assert (code, "copy of surreal.learner.on_policy.policy_gradient" in output) == (0, True), output
    agent = tmp_path / "bandit" / "algorithm" / "agent.py"
    text = agent.read_text()
    choice = "self.sampler.choose(policy, explore, device, context.slots, context.is_first)"
    assert choice in text
    agent.write_text(text.replace(choice, "torch.ones(len(explore), dtype=torch.int64)"))
    code, output = workplace.run("run", *app, "--run", "second", *any_port, "--set", "environment.steps=500")
    assert code == 0, output
    assert shares(output) == [("environment-0", [0, 100, 0, 0])]
    assert workplace.processes() == []


def test_parts_of_an_app_find_each_other(workplace: Workplace) -> None:
    assert workplace.run("new", "bandit", "-a", "dqn")[0] == 0
    app = ["-c", "bandit/app.yaml"]
    port = ("--set", f"rlx.port={claim_port()}")
    servers = workplace.start("run", "parameter-server", *app, *port)
    workplace.wait_for(workplace.knows, "the run")
    server = workplace.start("run", "rlx-server", "metrics-server", *app, *port)
    programs = ("-n", "2", "--exploit", "true", "--set", "environment.steps=500")
    code, output = workplace.run("run", "environment", *app, *port, *programs)
    assert code == 0, output
    assert {name for name, _ in shares(output)} == {"environment-0", "environment-1"}
    # The first one exploits: its steps are no experience.
    steps = workplace.wait_for(lambda: workplace.status()["env_steps"] or None, "experience")
    assert steps <= 500
    assert workplace.run("stop")[0] == 0
    assert servers.wait() == 0, servers.output
    assert server.wait() == 0, server.output
    assert "ended: the run is over" in server.output
    assert "not in its folder" not in servers.output


def test_an_environment_program_that_fails_ends_the_run_and_ctrl_c_ends_it_too(
    workplace: Workplace, tmp_path: Path
) -> None:
    assert workplace.run("new", "bandit")[0] == 0
    app = ["-c", "bandit/app.yaml", "--set", "rlx.port=0"]
    code, output = workplace.run("run", *app, "--set", "environment.run=python environment/nothing.py")
    assert code == 1
    assert re.search(r"error: environment-0 failed: .*nothing.py.*No such file", output), output
    command = workplace.start("run", *app, "--run", "long", "--set", "environment.infinite_run=true")
    workplace.wait_for(lambda: "pulls" in command.output, "what the program prints")
    command.process.send_signal(signal.SIGINT)
    assert command.wait() == 130, command.output
    assert workplace.processes() == []
