"""Running statistics: exact, however the steps come, and the same in agents and learner."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces

from surreal.base.specs import ObsSpec
from surreal.model import ActorCritic
from surreal.model.filters import ObsFilter, ReturnFilter, RunningMoments


def test_the_statistics_of_three_agents_chunks_are_those_over_all_steps() -> None:
    rng = np.random.default_rng(0)
    steps = torch.tensor(rng.normal([5.0, -1e4], [0.1, 30.0], size=(3000, 2)), dtype=torch.float32)
    moments = RunningMoments((2,))
    agents = steps.split(1000)
    for begin in range(0, 1000, 40):  # the learner gets them in turns, and in portions of different sizes
        for size, agent in zip((40, 40, 40), agents, strict=True):
            first, second = agent[begin : begin + size].split([7, 33])
            moments.update(first)
            moments.update(second)
    assert moments.count == 3000
    np.testing.assert_allclose(moments.mean, steps.double().mean(0), rtol=1e-9)
    np.testing.assert_allclose(moments.deviation(), steps.double().std(0, correction=0), rtol=1e-6)


def test_nothing_and_one_step_change_no_scale() -> None:
    moments = RunningMoments((2,))
    moments.update(torch.zeros(0, 2))
    assert (moments.count, moments.deviation().round(decimals=6).tolist()) == (0, [1.0, 1.0])
    moments.update(torch.tensor([[3.0, 4.0]]))
    assert moments.mean.tolist() == [3.0, 4.0]
    assert moments.deviation().round(decimals=6).tolist() == [1.0, 1.0]


def test_only_real_leaves_of_steps_are_counted_whatever_the_order_of_keys() -> None:
    spec = ObsSpec.from_obs({"b": np.zeros(2, np.float32), "a": (np.zeros(3, np.uint8), np.zeros((), np.float64))})
    obs_filter = ObsFilter(spec)
    b, pixels, scalar = torch.randn(4, 5, 2), torch.randint(255, (4, 5, 3)).to(torch.uint8), torch.randn(4, 5) + 7.0
    obs = {"b": b, "a": (pixels, scalar)}
    is_step = torch.rand(4, 5) < 0.7
    obs_filter.update(obs, is_step)
    found = obs_filter(obs)
    assert torch.equal(found["a"][0], pixels)
    for values, before in ((found["b"], b), (found["a"][1], scalar)):
        kept = values[is_step]
        torch.testing.assert_close(kept.mean(0), torch.zeros_like(kept[0]), atol=1e-5, rtol=0.0)
        torch.testing.assert_close(kept.std(0, correction=0), torch.ones_like(kept[0]), atol=1e-4, rtol=0.0)
        assert values.shape == before.shape


def test_statistics_travel_with_the_parameters() -> None:
    spec, space = ObsSpec.from_obs(np.zeros(3, np.float32)), spaces.Discrete(2)
    theirs = ActorCritic([8], action_space=space, normalize_obs=True, normalize_rewards=True, obs_spec=spec)
    assert theirs.obs_filter is not None
    theirs.obs_filter.update(torch.randn(10, 4, 3) * 9.0, torch.ones(10, 4, dtype=torch.bool))
    ours = ActorCritic([8], action_space=space, normalize_obs=True, normalize_rewards=True)
    ours.load_tensors(theirs.tensors(), header=theirs.header())
    obs = torch.randn(5, 3) * 9.0
    torch.testing.assert_close(ours(obs).value, theirs(obs).value)
    assert "obs_filter.moments.0.squares" in ours.tensors()


def test_the_sum_of_squares_of_returns_goes_on_from_batch_to_batch() -> None:
    rng = np.random.default_rng(1)
    return_filter, returns = ReturnFilter(), []
    for _ in range(5):
        reward, mask = rng.normal(size=(2, 6, 3))
        mask = mask > -0.5
        mask[0] = True
        discount = np.where(mask & (rng.random((6, 3)) < 0.8), 0.9, 0.0)
        reward = np.where(mask, reward, 0.0)
        for b in range(3):
            total = carried = 0.0
            for t in range(6):
                total = carried * total + reward[t, b]
                carried = discount[t, b]
                if mask[t, b]:
                    returns.append(total)
        tensors = (torch.tensor(array, dtype=torch.float32) for array in (reward, discount))
        return_filter.update(*tensors, torch.tensor(mask))
    assert float(return_filter.moments.deviation()) == pytest.approx(np.std(returns), rel=1e-5)
    scaled = return_filter(torch.tensor([[1.0, -1000.0]]))
    torch.testing.assert_close(scaled, torch.tensor([[1.0 / np.std(returns), -10.0]], dtype=torch.float32))


def test_the_scale_is_that_of_the_buffers_after_every_kind_of_change() -> None:
    rng = np.random.default_rng(0)
    moments, other = RunningMoments((3,)), RunningMoments((3,))

    def check(tested: RunningMoments) -> None:
        mean, deviation = tested.scale()
        assert torch.equal(mean, tested.mean.float()) and torch.equal(deviation, tested.deviation().float())
        assert tested.scale()[0] is mean  # nothing is computed again
        assert not mean.is_inference()

    def values() -> torch.Tensor:
        return torch.tensor(rng.normal(2.0, 3.0, (20, 3)))

    check(moments)
    moments.update(values())
    check(moments)
    with torch.inference_mode():
        moments.update(values())
        check(moments)
    other.update(values())
    moments.load_state_dict(other.state_dict())
    check(moments)
    other.update(values())
    torch._foreach_copy_(list(moments.buffers()), list(other.buffers()))
    check(moments)
    copied = copy.deepcopy(moments)
    for _ in range(12):  # among others, as many changes as the original had when it was copied
        copied.update(values())
        check(copied)
    check(moments)
    moments.mean = values()[0]
    check(moments)
    with torch.inference_mode():
        made = RunningMoments((3,))
        assert torch.equal(made.scale()[1], torch.ones(3))
