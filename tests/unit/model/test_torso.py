"""The torso: any leading axes, images and vectors side by side, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.base.specs import ObsSpec
from surreal.model import QFunction, Torso
from surreal.model.conv import read_convolutions

MIXED = ObsSpec.from_space(
    spaces.Dict({"camera": spaces.Box(0, 255, (2, 9, 7), np.uint8), "speed": spaces.Box(-1, 1, (3,))})
)
SMALL = read_convolutions([{"n_filters": 4, "filter_size": 3, "stride": 2}])


def mixed(*leading: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "camera": torch.randint(0, 256, (*leading, 2, 9, 7), dtype=torch.uint8, generator=generator),
        "speed": torch.randn(*leading, 3, generator=generator),
    }


def test_images_are_convolved_and_vectors_go_beside_them() -> None:
    torso = Torso(MIXED, convolutions=SMALL)
    obs = mixed(5)
    convolved = torso.images[0](obs["camera"].float() / 255)
    assert convolved.shape == (5, 4 * 4 * 3)
    torch.testing.assert_close(torso(obs), torch.cat([convolved, obs["speed"]], dim=1))
    assert torso.num_features == 4 * 4 * 3 + 3


def test_sequences_give_what_their_steps_give() -> None:
    torso = Torso(MIXED, convolutions=SMALL, hiddens=[6])
    obs = mixed(4, 5)
    sequences = torso(obs)
    assert sequences.shape == (4, 5, 6)
    for t in range(4):
        torch.testing.assert_close(sequences[t], torso({name: leaf[t] for name, leaf in obs.items()}))


def test_scalars_are_one_feature_each() -> None:
    torso = Torso(ObsSpec.from_space(spaces.Discrete(5)))
    assert torch.equal(torso(torch.tensor([3, 1])), torch.tensor([[3.0], [1.0]]))


def test_observations_of_another_shape_are_named() -> None:
    model = QFunction(hiddens=[8], action_space=2, obs_spec=ObsSpec.from_obs(np.zeros(4)))
    with pytest.raises(ValueError, match=r"\[2, 5\], but one of them is \[4\]"):
        model(torch.zeros(2, 5))


def test_convolutions_without_an_image_are_refused() -> None:
    with pytest.raises(ValueError, match="not images"):
        Torso(ObsSpec.from_obs({"a": np.zeros(3), "b": 1.0}), convolutions=SMALL)


def test_leaves_too_small_for_the_convolutions_are_flattened_next_to_images() -> None:
    spec = ObsSpec.from_obs({"obs": np.zeros((4, 84, 84), np.uint8), "last_action": np.zeros((4, 6), np.float32)})
    torso = Torso(spec, convolutions=read_convolutions("nature"))
    assert torso.num_features == 7 * 7 * 64 + 24
    obs = {"obs": torch.zeros(2, 4, 84, 84, dtype=torch.uint8), "last_action": torch.ones(2, 4, 6)}
    assert torso(obs).shape == (2, torso.num_features)
    padded = read_convolutions("impala")  # which fits any leaf
    alone = Torso(ObsSpec.from_obs(np.zeros((4, 84, 84), np.uint8)), convolutions=padded)
    assert Torso(spec, convolutions=padded).num_features == alone.num_features + 24
    with pytest.raises(ValueError, match="too small"):
        Torso(ObsSpec.from_obs(np.zeros((4, 6), np.float32)), convolutions=read_convolutions("nature"))
