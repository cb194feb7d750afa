"""A preset of the on-policy algorithms truly learns, with agents that wait for each update."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace


def test_ppo_learns_cartpole_from_few_env_steps(workplace: Workplace) -> None:
    """Random play returns 22; seeds reach 195 after 5,000 to 15,000 env steps, and the bound is far above."""
    goal = ["run.stop_at_return=195", "run.max_env_steps=60_000", "eval.confirm_episodes=0"]
    code, output = workplace.run("run", "cartpole-ppo", *[part for one in goal for part in ("--set", one)])
    assert code == 0, output
    result = json.loads((workplace.run_dir() / "result.json").read_text())
    assert "stop_at_return" in result["reason"], result
    metrics = [json.loads(line) for line in (workplace.run_dir() / "metrics.jsonl").read_text().splitlines()]
    lag = "learner/policy_lag_versions"
    assert max(line["metrics"].get(lag, 0.0) for line in metrics) <= 1.0, "agents wait for each version"
