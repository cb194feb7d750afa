"""Observations of a Tuple space, from the sender through every kind of replay into models, filters and learners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from naive_replay import Pool, names_of, pump

from surreal.base.types import Action
from surreal.learner import A2CLearner, DQNLearner, GradientLearner, IPGLearner, SACLearner
from surreal.model import ActorCritic, DiscreteSoftActorCritic, QFunction
from surreal.replay import FIFOReplay, MixedTrajectoryReplay, Replay, UniformReplay

SPACE = spaces.Discrete(5)
OPTIONS: dict[str, Any] = {"batch_size": 4, "capacity": 10_000, "start_size": 40, "prefetch": 1, "seed": 0}


def actor_critic() -> ActorCritic:
    return ActorCritic([8], action_space=SPACE, normalize_obs=True, value_hiddens=[8])


CASES: dict[str, tuple[Callable[[Any], Replay[Any]], Callable[[], GradientLearner]]] = {
    "transitions": (
        lambda client: UniformReplay(client, **OPTIONS),
        lambda: SACLearner(DiscreteSoftActorCritic([8], action_space=SPACE)),
    ),
    "remote": (
        lambda client: UniformReplay(client, observations="remote", **OPTIONS),
        lambda: DQNLearner(QFunction([8], action_space=5)),
    ),
    "fifo": (
        lambda client: FIFOReplay(client, batch_size=2, trajectory_steps=8),
        lambda: A2CLearner(actor_critic(), icm={"hidden_sizes": [4]}),
    ),
    "mixed": (
        lambda client: MixedTrajectoryReplay(client, trajectory_steps=8, max_version_lag=None, **OPTIONS),
        lambda: IPGLearner(actor_critic()),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_tuple_stays_a_tuple_until_it_is_learned_from(name: str, run: Any) -> None:
    make_replay, make_learner = CASES[name]
    replay = make_replay(run.client)
    run.replays.append(replay)
    pool, sender = Pool(3, 1, 0.5, is_dict=True), run.sender(chunk_steps=11)
    for _ in range(60):
        batch, action = pool.recv()
        rows = len(action.actions)
        extras = {"log_probability": np.full(rows, -1.6, np.float32), "value": np.zeros(rows, np.float32)}
        obs = (batch.obs["pixels"], batch.obs["pose"])
        sender.send_batch(batch._replace(obs=obs), Action(action.actions, extras, action.version))
    sender.flush()
    pump(replay, steps=int(sender.metrics()["sender/steps_total"]))
    learner = make_learner()
    for i in range(2):
        while not len(replay.fetcher_queue):
            assert replay.step(timeout_s=0)
        found = replay.dequeue(1.0)
        pixels, (pair, number) = found.obs
        leading = number.shape
        assert torch.equal(pixels.float(), pair)
        assert len(names_of([leaf.reshape(-1, *leaf.shape[len(leading) :]).numpy() for leaf in (pair, number)])) > 0
        metrics = learner.optimize(i, found)
    assert all(np.isfinite(value) for value in metrics.values())
    assert learner.model.header()["obs"]["structure"] == {"tuple": [None, {"tuple": [None, None]}]}
