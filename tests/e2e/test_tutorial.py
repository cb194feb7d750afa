"""The tutorial, from an empty folder to a pole that stays up, as it is printed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.e2e.reader import Reader
from tests.pages import ROOT, read_page
from tests.ports import claim_port

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace


@pytest.mark.slow
def test_a_reader_of_the_tutorial_gets_a_working_project_at_every_step(workplace: Workplace) -> None:
    page = read_page(ROOT / "docs" / "tutorial.md")
    with Reader(workplace, {"7001": claim_port()}) as reader:
        reader.follow(page)
    runs = reader.folder / "runs"
    result = json.loads((runs / "solved" / "result.json").read_text())
    assert "stop_at_return" in result["reason"], result
    assert result["best"]["mean_return"] >= 475
    metrics = (runs / "solved" / "metrics.jsonl").read_text()
    for name in ("agent/certainty", "agent/run_mean_length", "client/episode_reward", "learner/policy_loss"):
        assert f'"{name}"' in metrics, name
    assert {path.name for path in reader.folder.glob("*.png")} == {"certainty.png", "solved.png"}
    assert workplace.processes() == []
