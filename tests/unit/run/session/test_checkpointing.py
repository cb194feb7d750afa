"""When a learner's state is written, and from what a learner begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from surreal.base.checkpoint import CheckpointStore, RunCheckpoints, save_checkpoint
from surreal.base.errors import ConfigError
from surreal.config import load_config
from surreal.run.session.checkpointing import Checkpointing
from tests.unit.run.session.fakes import Clock, FakeBroadcaster, FakeLearner, FakeReplay


class Bench:
    def __init__(self, folder: Path, *overrides: str) -> None:
        self.clock, self.learner, self.replay = Clock(), FakeLearner(), FakeReplay()
        self.broadcaster = FakeBroadcaster()
        self.store = RunCheckpoints(CheckpointStore(folder, keep=100))
        settings = ["checkpoint.checkpoint_time_interval=30", *overrides]
        parts: Any = (self.learner, self.replay, self.broadcaster, self.store)
        self.checkpoints = Checkpointing(load_config("cartpole-dqn", settings), *parts, clock=self.clock)

    @property
    def saved(self) -> list[int]:
        return sorted(int(Path(name).stem) for name in self.store.names())


def test_checkpoint_is_due_after_enough_updates(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "checkpoint.interval_updates=4")
    for updates in range(1, 11):
        bench.learner.updates = updates
        bench.checkpoints.after_update()
    assert bench.saved == [4, 8]


def test_without_an_interval_updates_alone_save_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.learner.updates = 10**6
    bench.checkpoints.after_update()
    assert bench.saved == []


def test_checkpoint_is_due_after_enough_time_if_something_was_learned(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.clock.now_s += 30
    bench.checkpoints.save_if_due()
    assert bench.saved == []
    bench.learner.updates = 1
    bench.clock.now_s += 29.9
    bench.checkpoints.save_if_due()
    assert bench.saved == []
    bench.clock.now_s += 0.1
    bench.checkpoints.save_if_due()
    assert bench.saved == [1]


def test_end_saves_only_what_is_not_saved_yet(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.checkpoints.finish()
    assert bench.saved == []
    bench.learner.updates = 5
    bench.checkpoints.finish()
    bench.checkpoints.finish()
    assert bench.saved == [5]


def test_resumed_run_begins_with_its_newest_checkpoint(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    first.learner.updates, first.broadcaster.version = 7, 3
    first.checkpoints.save()
    second = Bench(tmp_path)
    assert second.checkpoints.restore(is_resumed=True)
    second.checkpoints.begin()
    assert (second.learner.updates, second.broadcaster.version, second.replay.loaded) == (7, 3, {"steps": 70})
    second.checkpoints.finish()  # nothing was learned since
    assert second.saved == [7]


def test_resumed_run_draws_no_random_number_twice(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    first.replay.rng.random(5)
    first.checkpoints.save()
    expected = first.replay.rng.random(), float(torch.rand(()))
    second = Bench(tmp_path)
    assert second.checkpoints.restore(is_resumed=True)
    assert (second.replay.rng.random(), float(torch.rand(()))) == expected
    other = Bench(tmp_path / "mine", f"checkpoint.restore={first.store.folder}/latest")
    before = np.random.default_rng(0).random()
    assert other.checkpoints.restore(is_resumed=False)
    assert other.replay.rng.random() == before, "another run has its own seed"


def test_checkpoint_without_the_state_of_generators_is_restored(tmp_path: Path) -> None:
    """As earlier versions wrote them."""
    metadata = {"kind": "learner", "state": {"updates": 3}, "replay": {"steps": 1}, "version": 2, "config": {}}
    CheckpointStore(tmp_path).save(3, {}, metadata)
    bench = Bench(tmp_path)
    assert bench.checkpoints.restore(is_resumed=True)
    assert bench.learner.updates == 3


@pytest.mark.parametrize("version", [2**54, -1, 0.5, float("nan"), "9", None])
def test_checkpoint_with_an_impossible_version_is_restored_and_reported(
    tmp_path: Path, version: Any, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = {"kind": "learner", "state": {"updates": 3}, "replay": {"steps": 1}, "version": version, "config": {}}
    CheckpointStore(tmp_path).save(3, {}, metadata)
    bench = Bench(tmp_path)
    assert bench.checkpoints.restore(is_resumed=True)
    assert (bench.learner.updates, bench.broadcaster.version, bench.replay.loaded) == (3, 0, {"steps": 1})
    assert "no version to continue from" in caplog.text


def test_checkpoint_of_another_run_gives_no_counts_of_the_replay(tmp_path: Path) -> None:
    other = Bench(tmp_path / "other")
    other.learner.updates = 7
    other.checkpoints.save()
    file = next((tmp_path / "other").glob("*.safetensors"))
    bench = Bench(tmp_path / "mine", f"checkpoint.restore={file}")
    assert bench.checkpoints.restore(is_resumed=False)
    assert (bench.learner.updates, bench.replay.loaded) == (7, None)


def test_policy_alone_is_a_start_for_the_network_only(tmp_path: Path) -> None:
    file = tmp_path / "best.safetensors"
    save_checkpoint(file, {"weight": torch.ones(2)}, {"kind": "policy"}, step=9)
    bench = Bench(tmp_path / "mine", f"checkpoint.restore={file}")
    assert bench.checkpoints.restore(is_resumed=False)
    assert bench.learner.policy is not None
    assert bench.learner.policy["weight"].tolist() == [1.0, 1.0]
    assert (bench.learner.updates, bench.learner.loaded) == (0, None)


def test_checkpoints_of_an_earlier_run_are_not_gone_on_with_by_accident(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    first.checkpoints.save()
    with pytest.raises(ConfigError, match="holds checkpoints of an earlier run; --resume continues with it"):
        Bench(tmp_path).checkpoints.restore(is_resumed=False)


@pytest.mark.parametrize("setting", ["null", "latest", "best"])
def test_without_a_checkpoint_nothing_is_restored(tmp_path: Path, setting: str) -> None:
    bench = Bench(tmp_path, f"checkpoint.restore={setting}")
    assert not bench.checkpoints.restore(is_resumed=True)
