"""Training from a program: the run is that of the command, and what it leaves acts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pages import read_page

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

PROGRAM = """
import threading
import surreal
from surreal.base.errors import SurrealError

overrides = {"run.max_env_steps": 4000, "run.stop_at_return": None, "eval.episodes": 20, "eval.interval_s": 0.2}
result = surreal.train("bandit-pg", seed=1, overrides=overrides, progress=False)
assert result.status == "finished" and result.reason.startswith("max_env_steps"), result
assert result.env_steps >= 4000 and result.best_return is not None
policy = surreal.load(result)
assert policy.act([1.0]) == 3, policy.act([1.0])  # the best arm
assert surreal.evaluate(policy, episodes=200, seed=1).mean_return > 0.65

def fail():
    try:
        surreal.train("bandit-pg", overrides={"env.id": "nobody:Knows-v0"}, progress=False)
    except SurrealError as error:
        print("refused:", error)

thread = threading.Thread(target=fail)  # where no signals can be handled
thread.start()
thread.join()
print("done")
"""

SEEDS = """
import surreal

for seed in range(3):
    overrides = {"run": {"max_env_steps": 100_000_000, "stop_at_return": None}}
    surreal.train("bandit-pg", seed=seed, overrides=overrides, run_dir=f"runs/{seed}", progress=False)
"""

#: No file has its class, as in a notebook: no process of the run can import it.
WITHOUT_FILE = """
import gymnasium
import numpy as np
import surreal

class Line(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.look(), {}

    def step(self, action):
        self.steps += 1
        return self.look(), float(action), self.steps == 20, False, {}

    def look(self):
        return np.array([1, self.steps / 20], np.float32)

overrides = {"run.stop_at_return": 18, "eval.interval_s": 0.2}
result = surreal.train(Line, "ppo", seed=1, steps=50_000, overrides=overrides, progress=False)
print(result)
assert result.reason.startswith("stop_at_return"), result.reason
assert surreal.evaluate(result.policy, episodes=5, seed=1).mean_return >= 18
assert result.scores["mean_return"][-1] >= 18 and result.metrics("learner/policy_loss")["learner/policy_loss"]
"""

INLINE = """
import os
import signal
import surreal

class Stop(Exception):
    pass

class Mine(surreal.DQNLearner):
    def learn(self, i, batch):
        if i == 0:
            raise Stop("as a debugger would find it")
        return super().learn(i, batch)

handler = signal.getsignal(signal.SIGINT)
surreal.learner_of_the_test = Mine
overrides = {"eval.enabled": False, "run.stop_at_return": None, "learner.class": "surreal.learner_of_the_test"}
try:
    surreal.train("cartpole-dqn", inline=True, overrides=overrides, progress=False)
except Stop as error:
    print("stopped in", os.getpid())
one, other = (surreal.train("bandit-pg", steps=1000, seed=3, inline=True, progress=False).policy for _ in range(2))
assert one.act([1.0]) == other.act([1.0])
assert signal.getsignal(signal.SIGINT) is handler
print("done in", os.getpid())
"""

#: Before a program that would train for a minute.
SHORTER = """
import surreal

def train(source, overrides, real=surreal.train, **more):
    overrides |= {"run.max_env_steps": 1000, "eval.episodes": 2, "agent.count": 1}
    return real(source, overrides=overrides, progress=False, **more)

surreal.train = train
"""


def test_a_program_trains_loads_and_evaluates(workplace: Workplace) -> None:
    command = workplace.start_python("-c", PROGRAM)
    assert command.wait() == 0, command.output
    assert "refused: " in command.output
    assert command.output.endswith("done\n")
    assert len(command.output.splitlines()) == 2
    assert len(list((workplace.folder / "runs").iterdir())) == 1
    workplace.assert_nothing_is_left()


def test_ctrl_c_ends_the_run_and_the_loop_around_it(workplace: Workplace) -> None:
    command = workplace.start_python("-c", SEEDS)
    workplace.wait_for((workplace.folder / "runs/0/eval/scores.jsonl").exists, "a first evaluation")
    command.interrupt()
    assert command.wait() in (130, -2), command.output  # Python ends itself by the signal
    assert command.output.splitlines()[-1].startswith("KeyboardInterrupt")
    assert [path.name for path in (workplace.folder / "runs").iterdir()] == ["0"]
    assert '"status": "interrupted"' in (workplace.folder / "runs/0/result.json").read_text()
    workplace.assert_nothing_is_left()


def test_the_program_of_the_page_trains_too(workplace: Workplace) -> None:
    program = read_page(Path(__file__).parents[2] / "docs" / "python.md")[0].text
    command = workplace.start_python("-c", SHORTER + program)
    assert command.wait() == 0, command.output
    assert float(command.output) > 5.0
    workplace.assert_nothing_is_left()


def test_an_environment_whose_class_is_in_no_file_is_trained_on(
    workplace: Workplace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    command = workplace.spawn("-c", WITHOUT_FILE, XDG_DATA_HOME=str(tmp_path_factory.mktemp("data")))
    assert command.wait() == 0, command.output
    assert command.output.startswith("<Result line-ppo-"), command.output
    workplace.assert_nothing_is_left()


def test_inline_training_raises_in_the_program_and_repeats(workplace: Workplace) -> None:
    command = workplace.start_python("-c", INLINE)
    assert command.wait() == 0, command.output
    stopped, done = (line.rpartition(" ")[2] for line in command.output.splitlines() if " in " in line)
    assert stopped == done
    workplace.assert_nothing_is_left()


def test_the_page_shows_the_same_in_stable_baselines3_and_both_run(workplace: Workplace) -> None:
    blocks = [block.text for block in read_page(Path(__file__).parents[2] / "docs" / "moving.md")]
    theirs, ours = (next(text for text in blocks if text.startswith(f"{word} ")) for word in ("from", "import"))
    assert "stable_baselines3" in theirs
    before = "import surreal.api, functools; surreal.train = functools.partial(surreal.api.train, progress=False)\n"
    for program in (theirs.replace("100_000", "512"), before + ours.replace("100_000", "512")):
        command = workplace.start_python("-c", program)
        assert command.wait(300.0) == 0, command.output
