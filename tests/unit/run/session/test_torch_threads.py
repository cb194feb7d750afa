"""How many threads a learner computes with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from surreal.base.system.process import count_cores
from surreal.config.schema.learning import LearnerConfig
from surreal.run.session import learner_process as torch_threads
from surreal.run.session.learner_process import set_torch_threads


@pytest.fixture(autouse=True)
def _same_threads_afterwards() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("threads", "ranks", "variables", "expected"),
    [
        (3, 1, {}, 3),
        ("all", 1, {}, 8),
        ("all", 3, {}, 2),
        ("all", 3, {"LOCAL_WORLD_SIZE": "2"}, 4),
        ("all", 16, {}, 1),
    ],
)
def test_a_learner_has_the_threads_that_it_was_told(
    monkeypatch: pytest.MonkeyPatch, threads: object, ranks: int, variables: dict[str, str], expected: int
) -> None:
    monkeypatch.setattr(torch_threads, "count_cores", lambda: 8)
    set_torch_threads(LearnerConfig.model_validate({"threads": threads, "ranks": ranks}), variables)
    assert torch.get_num_threads() == expected


def test_a_learner_that_is_told_nothing_keeps_what_it_has() -> None:
    torch.set_num_threads(2)
    set_torch_threads(LearnerConfig())
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("threads", [0, -1, "some", 1.5, True])
def test_a_wrong_number_of_threads_is_refused(threads: object) -> None:
    with pytest.raises(ValueError, match="it must be an integer >= 1, or all"):
        LearnerConfig.model_validate({"threads": threads})


@pytest.mark.parametrize(("said", "at_most"), [("100000 100000", 1), ("150000 100000", 2), ("10000 100000", 1)])
def test_the_cores_of_a_container_are_its_share(tmp_path: Path, said: str, at_most: int) -> None:
    (tmp_path / "cpu.max").write_text(said + "\n")
    assert 1 <= count_cores(tmp_path) <= at_most


@pytest.mark.parametrize("said", ["max 100000\n", "", "nonsense", None])
def test_without_a_share_the_cores_are_those_of_the_machine(tmp_path: Path, said: str | None) -> None:
    if said is not None:
        (tmp_path / "cpu.max").write_text(said)
    assert count_cores(tmp_path) == count_cores(tmp_path / "not there")
