"""The programs of examples/: each does what it says, ends by itself, and leaves no process."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

EXAMPLES = Path(__file__).parents[2] / "examples"


class Example:
    """Runs programs of examples/, on the Redis of all tests unless they start a run.

    Args:
        workplace: where.
        address: of the Redis.
    """

    def __init__(self, workplace: Workplace, address: str) -> None:
        self.workplace = workplace
        self.environment = {"SURREAL_REDIS": address}

    def run(self, name: str, *arguments: str, typed: str = "", trains: bool = False) -> str:
        """Give what a program prints."""
        program = str(EXAMPLES / f"{name}.py")
        environment = {} if trains else self.environment
        command = self.workplace.start_python(program, *arguments, typed=typed, **environment)
        assert command.wait() == 0, command.output
        # A process that only watches over others ends a moment later.
        self.workplace.wait_until_nothing_runs()
        assert "WARNING" not in command.output, command.output
        return command.output


def numbers(pattern: str, text: str) -> list[float]:
    """The numbers of the only place that a pattern with # for each of them is found at."""
    found = re.findall(re.escape(pattern).replace(r"\#", r"(-?[\d.]*\d)"), text)
    assert len(found) == 1, text
    return [float(number) for number in (found[0] if isinstance(found[0], tuple) else found)]


@pytest.fixture
def example(workplace: Workplace, redis_server: Any) -> Example:
    return Example(workplace, redis_server.address)


def test_an_environment_of_ones_own_is_trained(example: Example) -> None:
    output = example.run("own_environment", "--steps", "6000", trains=True)
    at_random, learned = numbers("mean return: # at random, # learned", output)
    assert learned > at_random + 10


def test_a_lift_learns_with_dict_observations_and_masks(example: Example) -> None:
    output = example.run("dict_and_masks", "--steps", "6000")
    at_random, learned = numbers("median return: # at random, # in the last 100 episodes", output)
    assert learned >= -5 > at_random  # the best has -3; an episode or two may stand still for long, hence no mean


def test_a_trainer_learns_from_each_row_once_though_its_workers_are_killed(example: Example) -> None:
    pattern = "# kills; rows: {'rows': #, 'put': #, 'consumed': #, 'stale': #}; #% right"
    kills, *rows, right = numbers(pattern, example.run("durable_trainer"))
    assert kills >= 1 and rows == [0, 4800, 4800, 0] and right > 80


def test_sender_and_replay_work_alone_at_the_rate_of_the_limiter(example: Example) -> None:
    output = example.run("sender_and_replay", "--steps", "8000")
    (drawn,) = numbers("each step was drawn # times", output)
    assert 3.2 < drawn < 4.3  # four for each but the first 500, give or take the tolerance
    assert "obs (64, 1)" in output


def test_a_torch_loop_of_ones_own_learns(example: Example) -> None:
    output = example.run("own_torch_loop", "--steps", "3000")
    first, last = numbers("mean return: # in the first 20 episodes, # in the last 5", output)
    assert last > 2 * first


def test_a_policy_comes_out_of_a_parquet_file(example: Example) -> None:
    output = example.run("offline_parquet", "--steps", "5000", "--updates", "1000")
    recorded, steps, learned = numbers("mean return: # in the file's # steps, # learned from it", output)
    assert steps > 4900
    assert learned > 2 * recorded


def test_a_games_own_loop_is_driven_and_learned_from(example: Example) -> None:
    output = example.run("game_loop", "--matches", "120", trains=True)
    scores = [float(score) for score in re.findall(r"mean score of matches \d+ to \d+: (-?[\d.]+)", output)]
    assert len(scores) == 12, output
    assert fmean(scores[-3:]) > fmean(scores[:3]) + 2


def test_a_policy_of_stable_baselines_acts_while_surreal_learns(example: Example) -> None:
    before, after = numbers("mean return: # before, # after", example.run("sb3_actor", "--steps", "3000"))
    assert after > 2 * before


def test_a_person_shows_the_way(example: Example) -> None:
    shortest = 11 * "d" + "s\n"
    output = example.run("demonstrations", typed=f"w{shortest}aw\n{shortest}")  # against the wall, once
    assert numbers("learned from # moves returns # in # moves", output) == [27, -13, 13]
    silent = example.workplace.start_python(str(EXAMPLES / "demonstrations.py"), **example.environment)
    assert (silent.wait(), silent.output.splitlines()[-1]) == (1, "nothing was shown, so there is nothing to learn")


def test_two_learners_learn_from_what_one_policy_does(example: Example) -> None:
    output = example.run("two_learners", "--steps", "6000")
    for policy in ("first", "second"):
        assert numbers(f"{policy} policy: mean return #", output)[0] > 40  # about 20 at random


def test_self_play_finds_what_wins(example: Example) -> None:
    output = example.run("self_play", "--steps", "9000", trains=True)
    assert output.count("as it should") >= 7, output  # of 9


def test_ctrl_c_ends_a_program_and_its_redis(workplace: Workplace) -> None:
    command = workplace.start_python(str(EXAMPLES / "own_torch_loop.py"), "--steps", "1000000")
    workplace.wait_for(lambda: "mean return" in command.output, "the first episodes")
    command.interrupt()
    assert command.wait() == 130, command.output
    assert command.output.endswith("interrupted\n")
    assert workplace.processes() == []
    assert [path.name for path in workplace.temporary.iterdir() if "surreal" in path.name] == []
