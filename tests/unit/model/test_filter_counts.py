"""Filters whose models are at agents: the server has one exact statistic of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from surreal.base.specs import ObsSpec
from surreal.distributed.gradients.encoding import assign_parameters
from surreal.learner import A2CLearner
from surreal.learner.parameter_server.server import ParameterServer
from surreal.model import ActorCritic, QFunction
from surreal.model.filters import COUNTS, FilterCounts

OBS = ObsSpec.from_obs(np.zeros(3, np.float32))


class Pushed(NamedTuple):
    tensors: Mapping[str, Mapping[str, Tensor]]
    version: int = 0
    global_step: int = 0


def made() -> Any:
    model = ActorCritic([4], action_space=spaces.Discrete(2), normalize_obs=True, normalize_rewards=True, seed=0)
    model.materialize(OBS)
    return model


def on_the_wire(groups: Mapping[str, Mapping[str, Tensor]]) -> dict[str, dict[str, Tensor]]:
    """As it arrives: float32."""
    return {group: {name: each.to(torch.float32) for name, each in found.items()} for group, found in groups.items()}


def see(model: Any, obs: Tensor) -> None:
    """Count steps [N, 3] in, as a learner does at the end of an update."""
    model.obs_filter.update(obs[:, None], torch.ones(len(obs), 1, dtype=torch.bool))


def test_what_three_agents_count_is_counted_once_whatever_is_refused_and_whenever_they_get_it_back() -> None:
    rng = torch.Generator().manual_seed(0)
    agents, server = [made() for _ in range(3)], made()
    ends = [FilterCounts(agent) for agent in agents]
    for end in ends:
        end.track()
    seen = []
    for turn in range(12):
        model, end = agents[turn % 3], ends[turn % 3]
        steps = 5.0 + turn + 3.0 * torch.randn(7 + turn, 3, generator=rng)
        seen.append(steps)
        see(model, steps)
        if turn % 4 == 1 and turn < 9:
            continue  # this push is refused: what it had goes with the next one
        FilterCounts(server).add(on_the_wire(end.pending())[COUNTS])
        end.forget()
        assert end.pending() == {}
        if turn % 2:
            model.load_tensors(server.tensors())
    everything = torch.cat(seen).to(torch.float64)
    moments = server.obs_filter.moments[0]
    assert float(moments.count) == len(everything)
    torch.testing.assert_close(moments.mean, everything.mean(0), rtol=1e-6, atol=0.0)
    torch.testing.assert_close(moments.deviation(), everything.std(0, correction=0), rtol=1e-6, atol=0.0)
    assert float(server.return_filter.moments.count) == 0.0  # nobody counted returns


@pytest.mark.parametrize("combine", ["fifo", "avg", "dc"])
def test_a_server_counts_each_push_and_takes_it_for_no_gradient(combine: str) -> None:
    learner = A2CLearner(made(), None, gradients_norm_clipping=0.1)
    learner.become_ready()
    server = ParameterServer(learner, combine=combine, num_gradients=2)
    server.published(0)
    agent = made()
    end = FilterCounts(agent)
    end.track()
    gradients = {"model": {name: torch.ones_like(each) for name, each in learner.parameter_groups()["model"].items()}}
    see(agent, torch.randn(6, 3))
    before = {name: each.detach().clone() for name, each in learner.parameter_groups()["model"].items()}
    has_stepped = server.step(Pushed({**gradients, **on_the_wire(end.pending())}))
    assert has_stepped is (combine != "avg")
    assert float(learner.model.obs_filter.moments[0].count) == 6.0
    torch.testing.assert_close(learner.model.obs_filter.moments[0].mean, agent.obs_filter.moments[0].mean)
    if has_stepped:  # of a clipped gradient in which no count has a part
        assert all((before[name] != each).all() for name, each in learner.parameter_groups()["model"].items())
        count = sum(each.numel() for each in before.values())
        assert learner.reading["gradient_norm"] == pytest.approx(count**0.5)


def test_counts_are_the_first_servers() -> None:
    learner = A2CLearner(made(), None)
    learner.become_ready()
    groups, counts = learner.parameter_groups(), FilterCounts(learner.model).groups()
    first, second = assign_parameters(groups, 2, counts)
    names = {f"{COUNTS}/{name}" for name in counts[COUNTS]}
    assert len(names) == 6  # of observations and of returns
    assert names <= first
    assert (first - names, second) == tuple(assign_parameters(groups, 2))


@pytest.mark.parametrize("total", [0.0, -3.0])
def test_a_count_of_nothing_spoils_nothing(total: float) -> None:
    model = made()
    see(model, torch.ones(2, 3))
    name = "obs_filter.moments.0"
    bad = {f"{name}.total": torch.tensor(total), f"{name}.mean": torch.ones(3), f"{name}.squares": torch.ones(3)}
    FilterCounts(model).add(bad)
    assert float(model.obs_filter.moments[0].count) == 2.0
    assert torch.isfinite(model.obs_filter.moments[0].deviation()).all()


def test_a_model_without_filters_sends_none() -> None:
    model = QFunction([4], action_space=2, obs_spec=OBS)
    counts = FilterCounts(model)
    counts.track()
    assert counts.groups() == counts.pending() == {}
