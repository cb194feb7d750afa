"""The scripts: the plain-API examples in either start order, and the role scripts on a Redis of their own.

Each is run once as a Python of its own (`Workplace.spawn`), as a user runs it; otherwise off a warm one.
"""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from surreal.base.specs import ObsSpec
from surreal.distributed import RedisClient, TorchBroadcaster, TorchListener
from surreal.model import QFunction

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

CARTPOLE = ObsSpec.from_obs(np.zeros(4, np.float32))
SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.mark.parametrize("order", [("agent", "learner"), ("learner", "agent")])
def test_plain_examples_work_in_either_order(
    workplace: Workplace, redis_server: Any, run_id: str, order: tuple[str, str]
) -> None:
    arguments = ["--redis", redis_server.address, "--run", run_id, "--steps", "2500"]
    start = workplace.spawn if order[0] == "agent" else workplace.start_python
    first = start(str(SCRIPTS / f"run_cartpole_{order[0]}.py"), *arguments)
    # Not at once: the first one has to find out that it is alone.
    workplace.wait_for(lambda: any(run_id in key for key in _keys(redis_server)), "its first key")
    second = start(str(SCRIPTS / f"run_cartpole_{order[1]}.py"), *arguments)
    learner = first if order[0] == "learner" else second
    agent = first if order[0] == "agent" else second
    for each in (learner, agent):  # an agent waits for minutes if its learner has failed
        assert each.wait() == 0, f"{learner.output}\n{agent.output}"
    assert "update 0: version 1" in learner.output
    assert "mean return" in agent.output


def test_ctrl_c_ends_the_plain_examples_with_a_line(workplace: Workplace, redis_server: Any, run_id: str) -> None:
    arguments = ["--redis", redis_server.address, "--run", run_id]
    commands = {
        name: start(str(SCRIPTS / f"run_cartpole_{name}.py"), *arguments)
        for name, start in (
            ("eval", workplace.spawn),
            ("learner", workplace.start_python),
            ("agent", workplace.start_python),
        )
    }
    lonely = workplace.start_python(str(SCRIPTS / "run_cartpole_agent.py"), *arguments[:3], f"{run_id}-alone")
    for name, sign in (("learner", "update 0: version 1"), ("agent", "mean return"), ("eval", ": return ")):
        workplace.wait_for(lambda name=name, sign=sign: sign in commands[name].output, f"{sign} of the {name}")
    workplace.wait_for(lambda: "waiting to send experience" in lonely.output, "what it waits for")
    for command in (*commands.values(), lonely):
        command.interrupt()
    for command in (*commands.values(), lonely):
        assert command.wait() == 130, command.output
        assert command.output.endswith("interrupted\n")
        assert "Traceback" not in command.output


def test_an_agent_with_another_model_ends_with_the_reason(workplace: Workplace, redis_server: Any, run_id: str) -> None:
    with RedisClient(redis_server.address, run=run_id) as client:
        broadcaster = TorchBroadcaster(client, QFunction(hiddens=[5], action_space=2, obs_spec=CARTPOLE), lease_s=60)
        broadcaster.broadcast()
        agent = workplace.start_python(
            str(SCRIPTS / "run_cartpole_agent.py"), "--redis", redis_server.address, "--run", run_id
        )
        assert agent.wait() == 1, agent.output
    assert re.search(r"^error: .* in run .*; processes of a run need the same model", agent.output, re.MULTILINE)
    assert "Traceback" not in agent.output


def test_a_learner_that_was_killed_goes_on_from_its_last_broadcast(
    workplace: Workplace, redis_server: Any, run_id: str
) -> None:
    arguments = ["--redis", redis_server.address, "--run", run_id, "--steps", "1000000"]
    agent = workplace.start_python(str(SCRIPTS / "run_cartpole_agent.py"), *arguments)
    learner = workplace.start_python(str(SCRIPTS / "run_cartpole_learner.py"), *arguments)
    mirror = QFunction(hiddens=[128, 128], action_space=2)
    with RedisClient(redis_server.address, run=run_id) as client:
        listener = TorchListener(client, mirror)
        workplace.wait_for(lambda: listener.update_once() and listener.version >= 5, "five versions")
        learner.process.kill()
        learner.wait()
        listener.update_once()
        last, before = listener.version, {name: tensor.clone() for name, tensor in mirror.tensors().items()}
        again = workplace.start_python(str(SCRIPTS / "run_cartpole_learner.py"), *arguments)
        workplace.wait_for(listener.update_once, "the first version of the second learner")
    assert f"resuming from version {last}" in again.output
    assert listener.version > last
    # A few updates further, not another random network: of two such, weights differ by 1.3 times their size.
    for name, tensor in mirror.tensors().items():
        bound = 0.2 if tensor.ndim > 1 else 0.5  # biases go faster
        assert (tensor - before[name]).abs().mean() < bound * before[name].abs().mean(), name
    assert agent.process.poll() is None


def test_role_scripts_join_one_run_from_several_folders(workplace: Workplace, tmp_path: Path) -> None:
    options = ["--port", "0", "--maxmemory", "256mb", "--appendonly", "data"]
    server = workplace.start("redis", *options, SURREAL_REDIS_PASSWORD="our secret/+")
    port = workplace.wait_for(lambda: re.search(r"127\.0\.0\.1:(\d+)", server.output), "the server's address")[1]
    environment = {"SURREAL_REDIS": f"redis://:our%20secret%2F%2B@127.0.0.1:{port}"}
    script = {role: str(SCRIPTS / f"run_{role}.py") for role in ("agent", "learner", "eval")}
    learner = workplace.spawn(
        script["learner"], "cartpole-dqn", "--run", "shared", "--run-dir", "here",
        *workplace.endless, *workplace.fast_eval, **environment,
    )  # fmt: skip
    workplace.wait_for(lambda: workplace.knows("shared", environment["SURREAL_REDIS"]), "the run")
    # The others know nothing but the run's name and its Redis.
    others = [
        start(script[role], "--run", "shared", "--run-dir", "there", "--index", index, **environment)
        for start, role, index in (
            (workplace.spawn, "agent", "0"),
            (workplace.start_python, "agent", "1"),
            (workplace.spawn, "eval", "0"),
        )
    ]

    def is_complete() -> bool:
        status = workplace.status("shared", environment["SURREAL_REDIS"])
        return len(status["processes"]) == 4 and status["eval_return"] is not None

    workplace.wait_for(is_complete, "all four processes, and a round")
    code, output = workplace.run("stop", "shared", **environment)
    assert code == 0, output
    for command in (learner, *others):
        assert command.wait() == 0, command.output
        assert "our secret" not in command.output
    logs = {path.name for path in (tmp_path / "here" / "logs").iterdir()}
    assert {"agent-0.log", "agent-1.log", "eval.log", "learner.log"} <= logs
    assert (tmp_path / "there" / "eval" / "best.safetensors").exists()
    assert (tmp_path / "data" / "appendonlydir").is_dir() or (tmp_path / "data" / "appendonly.aof").is_file()
    code, output = workplace.run("stop", "shared", "--delete", **environment)
    assert (code, "removed run shared" in output) == (0, True), output
    code, output = workplace.run("status", **environment)
    assert (code, "knows no run" in output) == (2, True), output
    server.interrupt()
    assert server.wait() == 0, server.output
    assert "our secret" not in server.output
    assert workplace.processes() == []
    assert list(workplace.temporary.iterdir()) == []


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("run_*.py")), ids=lambda path: path.stem)
def test_every_script_explains_itself(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(script), run_name="__main__")
    assert (end.value.code, capsys.readouterr().out.split()[:1]) == (0, ["Usage:"])


def _keys(server: Any) -> list[str]:
    with server.client() as client:
        return [key.decode() for key in client.keys("*")]
