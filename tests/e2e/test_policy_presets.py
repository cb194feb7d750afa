"""Presets of learners of policies: one truly learns, and agents wait for each update."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from surreal.base.checkpoint import CheckpointStore
from surreal.plugins.plot.drawing import Histories
from surreal.plugins.recorded.curves import Axis, run_line
from surreal.plugins.recorded.listing import read_run

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace


def test_ppo_learns_cartpole_from_few_env_steps(workplace: Workplace) -> None:
    """Random play returns 22; seeds reach 195 after 5,000 to 15,000 env steps, and the bound is far above."""
    goal = ["run.stop_at_return=195", "run.max_env_steps=60_000", "eval.confirm_episodes=0"]
    code, output = workplace.run("run", "cartpole-ppo", *[part for one in goal for part in ("--set", one)])
    assert code == 0, output
    result = json.loads((workplace.run_dir() / "result.json").read_text())
    assert "stop_at_return" in result["reason"], result
    assert_agents_waited_for_each_version(workplace)
    assert_each_update_is_a_point(workplace, result["updates"])


def test_fresh_and_replayed_trajectories_are_learned_from_in_rounds(workplace: Workplace) -> None:
    goal = ["run.stop_at_return=null", "run.max_env_steps=2_000", "eval.episodes=2", "replay.capacity=1_000"]
    code, output = workplace.run("run", "cartpole-ipg", *[part for one in goal for part in ("--set", one)])
    assert code == 0, output
    run_dir = workplace.run_dir()
    result = json.loads((run_dir / "result.json").read_text())
    assert result["updates"] >= 12, "a round has 128 rows"
    assert_agents_waited_for_each_version(workplace)
    checkpoint = CheckpointStore(run_dir / "checkpoints").newest_whole()
    assert checkpoint is not None
    found = {name.partition("/")[0] for name in checkpoint.tensors}
    assert found == {"model", "critics", "target", "optimizer", "optimizer-critic"}


def assert_each_update_is_a_point(workplace: Workplace, updates: int) -> None:
    (history,) = Histories([read_run(workplace.run_dir())]).histories
    curves = history.curves("learner/value_loss")
    line = run_line(curves, "learner/value_loss", Axis.UPDATES, history.started)
    assert len({*line.x}) == len({*line.y}) == updates, "a point of the curve for each update"
    # Two rounds may have arrived when one update begins: both updates are then at the same env step.
    assert len(run_line(curves, "learner/value_loss", Axis.STEPS, history.started).x) >= 0.9 * updates


def assert_agents_waited_for_each_version(workplace: Workplace) -> None:
    metrics = [json.loads(line) for line in (workplace.run_dir() / "metrics.jsonl").read_text().splitlines()]
    lag = "learner/policy_lag_versions"
    assert max(line["metrics"].get(lag, 0.0) for line in metrics) <= 1.0, "agents wait for each version"
