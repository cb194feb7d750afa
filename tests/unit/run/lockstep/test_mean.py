"""Four agents whose gradients a parameter server takes the mean of, and four ranks: the same learning."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from surreal.learner import DQNLearner, GradientLearner, Gradients
from surreal.learner.parameter_server.server import ParameterServer
from surreal.model import QFunction
from tests.meeting import together
from tests.ranked import UPDATES, make_batch, part_of

AGENTS = 4


class Pushed(NamedTuple):
    tensors: dict[str, dict[str, Tensor]]
    version: int = 1
    global_step: int = 0


def make() -> GradientLearner:
    learner = DQNLearner(
        QFunction([16], action_space=2, seed=0),
        optimizer="rmsprop",
        initial_learning_rate=0.01,
        gradients_norm_clipping=0.5,
        target_update_period=100,
    )
    learner.model(torch.zeros(1, 4))
    learner.become_ready()
    return learner


def parts(rank: int) -> list[Any]:
    return [part_of(make_batch(seed), rank, AGENTS) for seed in range(UPDATES)]


def learned_by_ranks() -> list[dict[str, Tensor]]:
    def learn(ranks: Any) -> dict[str, Tensor]:
        learner = make()
        learner.learn_with(ranks)
        for i, batch in enumerate(parts(ranks.rank)):
            learner.optimize(i, batch)
        return {name: tensor.clone() for name, tensor in learner.model.tensors().items()}

    return together(AGENTS, learn)


def test_four_agents_with_avg_learn_what_four_ranks_do_of_the_same_batches() -> None:
    agents, stepping = [make() for _ in range(AGENTS)], make()
    server = ParameterServer(stepping, combine="avg", num_gradients=AGENTS)
    batches = [parts(place) for place in range(AGENTS)]
    for i in range(UPDATES):
        steps = []
        for place, agent in enumerate(agents):
            sent: list[Gradients] = []
            agent.send_gradients(sent.extend)
            agent.optimize(i, batches[place][i])
            steps.append(server.step(Pushed({each.group: each.tensors for each in sent})))
        assert steps == [False, False, False, True]
        for agent in agents:
            agent.model.load_tensors(stepping.model.tensors(), i + 2)
    for found in learned_by_ranks():
        for name, tensor in stepping.model.tensors().items():
            # The sums of four numbers of 24 bits, in another order, over eight updates.
            torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6)
