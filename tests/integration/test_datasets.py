"""Datasets of `make datasets`: the presets for recorded experience learn from what it records."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import datasets
from benchmarks.datasets import TASKS
from surreal.config import load_config
from surreal.replay.archive import ReplayArchive
from surreal.run.build.saved_policy import INDEX_NAME
from surreal.run.session import offline

POLICIES = Path(__file__).parents[2] / "policies"


@pytest.mark.parametrize("name", TASKS)
def test_a_task_trains_where_everything_is_kept_and_its_expert_is_pretrained(name: str) -> None:
    task = TASKS[name]
    config = load_config(task.preset, [f"replay.max_bytes={datasets._REPLAY_BYTES}"])
    assert config.replay.samples_per_insert is not None  # off-policy
    assert config.replay.capacity >= task.train_steps
    assert config.run.max_env_steps > task.train_steps
    assert config.env == load_config(task.expert).env.model_copy(update={"num_envs": config.env.num_envs})
    assert task.expert in json.loads((POLICIES / INDEX_NAME).read_text())["policies"]


def test_a_recorded_task_fits_its_presets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, ...]] = []

    def train(*arguments: Any) -> Any:
        made.append(arguments)
        return SimpleNamespace(act=lambda _: [9.0, -9.0, 0.0])  # beyond the bounds, which is clipped

    monkeypatch.setattr(datasets, "train", train)
    datasets.record(TASKS["hopper"]._replace(steps=30), tmp_path / "hopper")
    assert made[0][3] == tmp_path / "hopper-replay"
    for kind in ("random", "medium", "expert"):
        archive = ReplayArchive(tmp_path / f"hopper-{kind}")
        archive.verify()
        assert archive.manifest.steps >= 30
        columns = [chunk.columns for chunk in archive.chunks()]
        assert all(abs(each["action"]).max() <= 1.0 for each in columns)
        assert columns[-1]["flags"][-1] in (1, 2)  # the last episode is whole
    for preset in ("hopper-bc", "hopper-cql", "hopper-iql", "hopper-td3bc"):
        config = load_config(preset, offline.offline_settings(load_config(preset), str(archive.path)))
        assert config.learner.max_updates == 50_000
    offline._check_spaces(config, archive, "hopper-expert")
