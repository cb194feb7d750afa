"""Training from a program: the run is that of the command, and what it leaves acts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

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

#: Before a program that would train for a minute.
SHORTER = """
import surreal

def train(source, overrides, real=surreal.train, **more):
    overrides |= {"run.max_env_steps": 1000, "eval.episodes": 2, "agent.count": 1}
    return real(source, overrides=overrides, progress=False, **more)

surreal.train = train
"""


def test_a_program_trains_loads_and_evaluates(workplace: Workplace) -> None:
    command = workplace.spawn("-c", PROGRAM)
    assert command.wait() == 0, command.output
    assert "refused: " in command.output
    assert command.output.endswith("done\n")
    assert len(command.output.splitlines()) == 2
    assert len(list((workplace.folder / "runs").iterdir())) == 1
    workplace.assert_nothing_is_left()


def test_ctrl_c_ends_the_run_and_the_loop_around_it(workplace: Workplace) -> None:
    command = workplace.spawn("-c", SEEDS)
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
