"""The arithmetic of docs/scaling.md follows from the code."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from benchmarks.scaling import AGENTS, HEADROOM, MEASURED, TASKS, plan, render
from surreal.config import load_config
from surreal.run.build.acting import build_model
from surreal.run.build.environments import build_spaces

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_tables_that_the_code_gives() -> None:
    page = (ROOT / "docs" / "scaling.md").read_text()
    for table in render().strip().split("\n\n"):
        assert table in page, "docs/scaling.md is not what python -m benchmarks.scaling prints"
    assert f"{MEASURED.server_chunks_s:,.0f} chunks/s" in page


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_twice_as_many_agents_never_need_less(task: object) -> None:
    plans = [plan(task, agents) for agents in sorted({*AGENTS, *(2 * agents for agents in AGENTS)})]  # type: ignore[arg-type]
    for less, more in itertools.pairwise(plans):
        assert all(a <= b for a, b in zip(less, more, strict=True))


def test_what_is_planned_with_is_not_more_than_was_measured() -> None:
    for task in TASKS:
        for agents in AGENTS:
            found = plan(task, agents)
            assert found.chunks_s / found.shards <= HEADROOM * MEASURED.server_chunks_s
            assert 2 * found.bytes_s / found.shards <= HEADROOM * MEASURED.server_bytes_s
            assert found.steps_s / found.ranks <= HEADROOM * task.intake_steps_s


def test_parameters_are_those_of_the_preset() -> None:
    config = load_config("cartpole-dqn")
    model = build_model(config, build_spaces(config))
    assert 4 * sum(tensor.numel() for tensor in model.tensors().values()) == TASKS[0].parameters_bytes
