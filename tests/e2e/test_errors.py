"""What goes wrong is said in one clear sentence, without a traceback, and the exit code is not 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace


def assert_one_sentence(code: int, output: str, message: str) -> None:
    lines = [line for line in output.splitlines() if line.startswith("error: ")]
    assert code == 1, output
    assert len(lines) == 1, output
    assert message in lines[0]
    assert "Traceback" not in output


@pytest.mark.parametrize("role", ["agent", "learner", "eval"])
def test_unreachable_redis(workplace: Workplace, role: str) -> None:
    code, output = workplace.run(role, "cartpole-dqn", "--redis", "127.0.0.1:9", "--connect-timeout", "0.2")
    assert_one_sentence(code, output, "127.0.0.1:9 did not answer")


def test_launcher_with_an_unreachable_redis_leaves_no_folder(workplace: Workplace) -> None:
    code, output = workplace.run("run", "cartpole-dqn", "--redis", "unix:///nowhere/redis.sock")
    assert_one_sentence(code, output, "Redis at unix:///nowhere/redis.sock did not answer")
    assert not (workplace.folder / "runs").exists()


def test_missing_environment_ends_the_run_with_its_reason(workplace: Workplace) -> None:
    code, output = workplace.run("run", "cartpole-dqn", "--set", "env.id=CartPol-v1")
    assert_one_sentence(code, output, "did you mean CartPole-v1?")
    workplace.assert_nothing_is_left()


def test_role_without_configuration_or_run(workplace: Workplace) -> None:
    assert_one_sentence(*workplace.run("agent"), "name a configuration")
    code, output = workplace.run("agent", "--redis", "x", "--index", "one")
    assert (code, "invalid int value" in output) == (2, True)


def test_process_that_differs_from_its_run_is_refused_with_the_difference(
    workplace: Workplace, redis_server: Any, run_id: str
) -> None:
    common = ["--redis", redis_server.address, "--run", run_id]
    learner = workplace.start("learner", "cartpole-dqn", *common)
    workplace.wait_for(lambda: workplace.knows(run_id, "--redis", redis_server.address), "the run")
    other = ["--set", "model.args.hidden_sizes=[7]"]
    code, output = workplace.run("agent", "cartpole-dqn", *common, *other)
    assert_one_sentence(code, output, "model.args.hidden_sizes: [128, 128] -> [7]")
    learner.interrupt()
    assert learner.wait(30.0) == 0, learner.output
    code, output = workplace.run("agent", "cartpole-dqn", *common)
    assert_one_sentence(code, output, "exists already in Redis")
    # Nobody is left to disagree with.
    other += ["--set", "run.max_env_steps=1100", "--set", "replay.samples_per_insert=null"]
    code, output = workplace.run("agent", "cartpole-dqn", *common, *other, "--resume")
    assert code == 0, output


def test_class_that_cannot_be_imported(workplace: Workplace) -> None:
    code, output = workplace.run("run", "cartpole-dqn", "--set", "learner.class=nowhere.Mine")
    assert_one_sentence(code, output, "nowhere cannot be imported")
