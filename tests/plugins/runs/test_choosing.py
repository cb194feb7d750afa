"""Which runs are meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from surreal.base.errors import ConfigError
from surreal.plugins.recorded.listing import ListedRun, Status
from surreal.plugins.runs.choosing import best_of, choose, in_order, matching


def run(label: str, status: Status = "finished", best: float | None = None, steps: int = 0) -> ListedRun:
    folder = Path("/runs") / label
    return ListedRun(f"id-{label}", status, folder, name="cart", best_return=best, env_steps=steps)


RUNS = [run("a1", best=3.0, steps=10), run("a2", "failed"), run("b1", best=7.0, steps=5), run("b2", "running", -1.0)]
OVER = ListedRun("redis-only", "over")


def labels(runs: list[ListedRun]) -> list[str]:
    return [run.label for run in runs]


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["a*"], ["a1", "a2"]),
        (["b1", "a1", "b?"], ["b1", "a1", "b2"]),
        (["id-a2"], ["a2"]),
        (["/runs/b2"], ["b2"]),
        (["[ab]2"], ["a2", "b2"]),
        (["redis-*"], ["redis-only"]),
        ([], []),
    ],
)
def test_runs_are_chosen_by_folder_id_path_and_pattern(names: list[str], chosen: list[str]) -> None:
    assert labels(choose([*RUNS, OVER], names)) == chosen


def test_name_that_nothing_has_is_said_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no run is called 'id-a11'; did you mean a1\?|there are"):
        choose(RUNS, ["a1", "id-a11"])
    with pytest.raises(ConfigError, match="there is no run at all"):
        choose([], ["x"])


def test_runs_are_filtered_by_name_configuration_and_status() -> None:
    assert labels(matching(RUNS, ["a*"], [])) == ["a1", "a2"]
    assert labels(matching(RUNS, ["cart"], ["failed", "running"])) == ["a2", "b2"]
    assert matching(RUNS, [], []) == RUNS


def test_order_has_the_largest_first_and_what_is_unknown_last() -> None:
    assert labels(in_order(RUNS, "return")) == ["b1", "a1", "b2", "a2"]
    assert labels(in_order(RUNS, "steps")) == ["a1", "b1", "a2", "b2"]
    assert labels(in_order(RUNS, "name", is_reversed=True)) == ["b2", "b1", "a2", "a1"]
    assert labels(best_of(RUNS, 2)) == ["b1", "a1"]
    assert labels(best_of(RUNS, 99)) == ["b1", "a1", "b2"]
