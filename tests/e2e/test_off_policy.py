"""Off-policy actor-critics through `surreal run`: all parts fit together, from the environment to the checkpoint."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from surreal.base.checkpoint import CheckpointStore

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace


@pytest.mark.parametrize(("preset", "parts"), [("pendulum-sac", {"temperature"}), ("pendulum-td3", set[str]())])
def test_a_short_run_updates_evaluates_and_keeps_everything(workplace: Workplace, preset: str, parts: set[str]) -> None:
    settings = {
        "agent.args.random_steps": 100, "replay.start_size": 100, "learner.batch_size": 16,
        "replay.samples_per_insert": 16, "run.max_env_steps": 500, "run.stop_at_return": "null", "eval.episodes": 2,
        "eval.interval_s": 0.5,
    }  # fmt: skip
    overrides = [item for key, value in settings.items() for item in ("--set", f"{key}={value}")]
    code, output = workplace.run("run", preset, *overrides)
    assert code == 0, output
    run_dir = workplace.run_dir()
    result = json.loads((run_dir / "result.json").read_text())
    assert "max_env_steps" in result["reason"], result
    assert result["updates"] > 200
    assert -2000.0 < result["best"]["mean_return"] < 0.0
    checkpoint = CheckpointStore(run_dir / "checkpoints").newest_whole()
    assert checkpoint is not None
    found = {name.partition("/")[0] for name in checkpoint.tensors}
    assert found - {"optimizer-temperature"} == {"model", "target", "optimizer-actor", "optimizer-critic"} | parts
    workplace.assert_nothing_is_left()
