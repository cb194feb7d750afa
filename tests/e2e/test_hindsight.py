"""The preset bitflip-her-dqn on six bits: hindsight learns in a few seconds what DQN alone does not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace

SETTINGS = (
    "env.kwargs.n=6", "env.num_envs=4", "agent.exploration={type: linear, start: 1.0, end: 0.1, steps: 1500}",
    "model.args.hidden_sizes=[64]", "learner.batch_size=32", "learner.args.target_update_period=50",
    "replay.start_size=200", "replay.samples_per_insert=16", "broadcast.interval_updates=100", "eval.interval_s=0",
    "run.max_env_steps=3000", "run.stop_at_return=null",
)  # fmt: skip


def last_success(workplace: Workplace, her_ratio: float) -> float:
    settings = [word for setting in SETTINGS for word in ("--set", setting)]
    ratio = ("--set", f"replay.args.her_ratio={her_ratio}")
    command = workplace.start("run", "bitflip-her-dqn", "--deterministic", "--run", str(her_ratio), *settings, *ratio)
    assert command.wait() == 0, command.output
    text = (workplace.folder / "runs" / str(her_ratio) / "eval" / "scores.jsonl").read_text()
    rounds = [line for line in map(json.loads, text.splitlines()) if line["kind"] == "round"]
    return float(rounds[-1]["success_ratio"])


def test_hindsight_learns_to_reach_goals_that_chance_does_not_reach(workplace: Workplace) -> None:
    assert last_success(workplace, 0.8) > 0.8
    assert last_success(workplace, 0.0) < 0.3
