"""What goes wrong is said in one clear sentence, without a traceback, and the exit code is not 0.

What the command line finds out before it starts anything is in tests/unit/main/test_cli.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.conftest import Command, Workplace


def assert_one_sentence(command: Command, message: str, code: int = 1) -> None:
    assert command.wait() == code, command.output
    lines = [line for line in command.output.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, command.output
    assert message in lines[0]
    assert "Traceback" not in command.output


def test_unreachable_redis(workplace: Workplace) -> None:
    nowhere = ["cartpole-dqn", "--redis", "127.0.0.1:9", "--connect-timeout", "0.2"]
    commands = [workplace.start(role, *nowhere) for role in ("agent", "learner")]
    elsewhere = ["--set", "redis.replay_address=127.0.0.1:9"]
    commands += [workplace.start("run", "cartpole-dqn", *elsewhere), workplace.start("run", *nowhere[:3])]
    for command in commands:
        assert_one_sentence(command, "127.0.0.1:9 did not answer")
    assert not (workplace.folder / "runs").exists()


def test_wrong_password_and_unknown_run(workplace: Workplace, start_redis: Any) -> None:
    server = start_redis(port=0, password="hush")
    for command, message, code in (
        (workplace.start("run", "cartpole-dqn", "--redis", server.address), "refused", 1),
        (workplace.start("agent", "--run", "x", "--redis", f"redis://:guess@{server.address}"), "refused", 1),
        (workplace.start("learner", "--run", "x", "--redis", f"redis://:hush@{server.address}"), "knows no run 'x'", 2),
        (workplace.start("learner", "--redis", f"redis://:hush@{server.address}"), "name a configuration", 2),
    ):
        assert_one_sentence(command, message, code)
        assert "hush" not in command.output


FAILING = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Failing(CartPoleEnv):
    def step(self, action):
        raise OverflowError("the pole fell through the floor")


gymnasium.register("Failing-v0", entry_point=Failing)
"""


def test_process_that_fails_ends_the_run_with_its_reason(workplace: Workplace) -> None:
    (workplace.folder / "failing.py").write_text(FAILING)
    settings = ["env.id=failing:Failing-v0", "python_path=[.]", "eval.enabled=false", "run.stop_at_return=null"]
    command = workplace.start("run", "cartpole-dqn", *workplace.one_agent, *(f"--set={each}" for each in settings))
    assert_one_sentence(command, "agent-0 failed: ")
    assert sum("the pole fell through the floor" in line for line in command.output.splitlines()) == 1
    assert "ended:" not in command.output
    log = workplace.run_dir() / "logs" / "agent-0.log"
    assert f"the traceback is in {log}" in command.output
    assert "OverflowError" in log.read_text()
    assert "results in" in command.output
    result = json.loads((workplace.run_dir() / "result.json").read_text())
    assert (result["status"], result["exit_code"]) == ("failed", 1)
    assert "best.safetensors" not in command.output
    assert workplace.processes() == []


def test_process_that_differs_from_its_run_is_refused_with_the_difference(
    workplace: Workplace, redis_server: Any, run_id: str
) -> None:
    common = ["--redis", redis_server.address, "--run", run_id]
    learner = workplace.start("learner", "cartpole-dqn", *common)
    workplace.wait_for(lambda: workplace.knows(run_id, redis_server.address), "the run")
    other = ["--set", "model.args.hidden_sizes=[7]"]
    assert_one_sentence(
        workplace.start("agent", "cartpole-dqn", *common, *other), "model.args.hidden_sizes: [128, 128] -> [7]"
    )
    learner.interrupt()
    assert learner.wait() == 130, learner.output
    assert_one_sentence(workplace.start("agent", "cartpole-dqn", *common), "exists already in Redis", 2)
    # Nobody is left to disagree with.
    other += ["--set", "run.max_env_steps=1100", "--set", "replay.samples_per_insert=null"]
    code, output = workplace.run("agent", "cartpole-dqn", *common, *other, "--resume")
    assert code == 0, output
