"""The comparison with d3rlpy: both sides get the same steps and settings."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from benchmarks.offline import KINDS, peer_settings, write_steps
from surreal.base.specs import ObsSpec, action_spec
from surreal.config import load_config
from surreal.distributed.experience.data_contract import Contract
from surreal.replay.archive import ArchiveWriter, ReplayArchive
from surreal.replay.archive.minari_import import Episode, _chunks


def test_the_peer_gets_each_step_once_with_its_own_observation(tmp_path: Path) -> None:
    contract = Contract(ObsSpec.from_space(spaces.Box(-9, 9, (2,))), action_spec(spaces.Box(-1, 1, (1,))))
    rng, lengths = np.random.default_rng(0), (1100, 3)
    obs = [rng.normal(size=(length + 1, 2)).astype(np.float32) for length in lengths]
    action, reward = (rng.normal(size=(sum(lengths), *shape)).astype(np.float32) for shape in ((1,), ()))
    with ArchiveWriter(tmp_path / "archive", contract) as writer:
        begin, numbers = 0, count(1)
        for length, leaf, is_terminated in zip(lengths, obs, (False, True), strict=True):
            steps = slice(begin, begin + length)
            for chunk in _chunks(contract, Episode([leaf], action[steps], reward[steps], is_terminated)):
                writer.add(chunk, sender="a", sequence=next(numbers))
            begin += length
        writer.finish(run="a", created=0.0, surreal_version="1")
    write_steps(ReplayArchive(tmp_path / "archive"), tmp_path / "steps.npz")
    found = np.load(tmp_path / "steps.npz")
    np.testing.assert_array_equal(found["observations"], np.concatenate([leaf[:-1] for leaf in obs]))
    np.testing.assert_array_equal(found["actions"], action)
    np.testing.assert_array_equal(found["rewards"], reward)
    assert (np.flatnonzero(found["timeouts"]).tolist(), np.flatnonzero(found["terminals"]).tolist()) == ([1099], [1102])


@pytest.mark.parametrize("kind", KINDS)
def test_the_peer_has_the_settings_of_the_preset(kind: str) -> None:
    found = peer_settings(load_config(f"pendulum-{kind}"))
    settings = found["settings"]
    assert found["kind"] == kind
    assert (settings["hidden"], settings["batch"], settings["gamma"], settings["bound"]) == ([64, 64], 256, 0.98, [2.0])
    assert settings["scales"] == (kind == "td3bc")
    assert settings.get("learning_rate", settings.get("actor_learning_rate")) == 1e-3
