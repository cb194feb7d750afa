"""Gradients of an agent's learner, handed to servers that step in its place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from surreal.base.specs import ObsSpec
from surreal.base.types import Batch, SampleInfo, TrajectoryBatch
from surreal.learner import A2CLearner, DDPGLearner, DQNLearner, GradientLearner, Gradients, PPOLearner
from surreal.model import ActorCritic, DeterministicActorCritic, QFunction
from surreal.model.filters import COUNTS, FilterCounts
from surreal.run.lockstep.gradient_buffer import GradientBuffer, WaitLimits
from surreal.run.process.progress import write_progress

OBS = ObsSpec.from_obs(np.zeros(4, np.float32))
NEVER = WaitLimits(100, 100, 5.0)


class Push(NamedTuple):
    """One, as the server has seen it."""

    groups: dict[str, dict[str, Tensor]]
    version: int
    env_steps: int
    episodes: int
    updates: int


class Answer(NamedTuple):
    status: str
    global_step: int


class Server:
    """Steps a learner of its own at once; it is sender and listener of the agent's model, too."""

    def __init__(self, learner: GradientLearner, model: Any, *, combined: int = 1, is_dead: bool = False) -> None:
        self.learner, self.model = learner, model
        self.pushes: list[Push] = []
        self.version = model.version = 1
        self.published = 1
        self.status = "ok"
        self.global_step = 0
        self.waits = 0
        self.sender_id, self.message = "me", write_progress(0, 0)
        self._progress = self.message
        self._combined, self._is_dead = combined, is_dead
        learner.become_ready()

    def push(
        self,
        gradients: Mapping[str, Mapping[str, Tensor]],
        *,
        version: int,
        env_steps: int,
        episodes: int = 0,
        updates: int = 1,
        stop: threading.Event | None = None,
    ) -> Answer:
        groups = {group: {name: each.clone() for name, each in found.items()} for group, found in gradients.items()}
        self.pushes.append(Push(groups, version, env_steps, episodes, updates))
        self.global_step += env_steps
        answer = Answer(self.status, self.global_step)
        if self.status == "ok" and not self._is_dead:
            FilterCounts(self.learner.model).add(groups.pop(COUNTS, {}))
            for group, tensors in groups.items():
                self.learner.stepper.step([Gradients(group, tensors)])
            if len(self.pushes) % self._combined == 0:
                self.published += 1
                self._progress = write_progress(0, 0, {self.sender_id: updates})
        return answer

    def update_once(self) -> bool:
        if self.version == self.published:
            return False
        self.model.load_tensors(self.learner.model.tensors(), self.published)
        self.version, self.message = self.published, self._progress
        return True

    def step(self) -> None:
        self.waits += 1
        self.update_once()


def transitions(seed: int, *, action: Tensor | None = None, rows: int = 16) -> Batch:
    rng = np.random.default_rng(seed)
    info = SampleInfo(*[np.zeros(rows, np.int64)] * 3)
    obs, after = (torch.tensor(rng.normal(size=(rows, 4)), dtype=torch.float32) for _ in range(2))
    action = torch.tensor(rng.integers(0, 2, rows)) if action is None else action
    return Batch(obs, action, torch.tensor(rng.random(rows)).float(), torch.full((rows,), 0.9), after, {}, info)


def trajectories(seed: int, rows: int = 8, columns: int = 4) -> TrajectoryBatch:
    rng = np.random.default_rng(seed)
    shape, info = (rows, columns), SampleInfo(*[np.zeros(columns, np.int64)] * 3)
    ends = torch.zeros(shape, dtype=torch.bool)
    return TrajectoryBatch(
        obs=torch.tensor(rng.normal(size=(rows + 1, columns, 4)), dtype=torch.float32),
        action=torch.tensor(rng.integers(0, 2, shape)),
        reward=torch.tensor(rng.random(shape), dtype=torch.float32),
        discount=torch.full(shape, 0.9),
        mask=torch.ones(shape),
        is_first=torch.zeros((rows + 1, columns), dtype=torch.bool),
        terminated=ends,
        truncated=ends,
        version=torch.zeros(shape, dtype=torch.int64),
        extras={"value": torch.zeros(shape), "log_probability": torch.full(shape, -0.7)},
        initial_state={},
        sample_info=info,
    )


def policy(**options: Any) -> ActorCritic:
    return ActorCritic((8,), action_space=spaces.Discrete(2), obs_spec=OBS, seed=0, **options)


def a2c(**options: Any) -> A2CLearner:
    return A2CLearner(policy(), **options)


def filtered() -> A2CLearner:
    return A2CLearner(policy(normalize_obs=True, normalize_rewards=True))


def ppo() -> PPOLearner:
    return PPOLearner(policy(), policy_iterations=2, mini_batch=16, max_kl=None)


def dqn() -> DQNLearner:
    return DQNLearner(QFunction((8,), action_space=spaces.Discrete(2), obs_spec=OBS, seed=0))


def ddpg() -> DDPGLearner:
    box = spaces.Box(-1.0, 1.0, (1,))
    return DDPGLearner(DeterministicActorCritic((8,), action_space=box, obs_spec=OBS, seed=0))


def connect(
    make: Callable[[], GradientLearner], waiting: WaitLimits = NEVER, **options: Any
) -> tuple[GradientLearner, Server, GradientBuffer]:
    agent, twin = make(), make()
    server = Server(twin, agent.model, **options)
    counts = {"steps": 0}

    def count() -> tuple[int, int]:
        counts["steps"] += 32
        return counts["steps"], counts["steps"] // 32

    agent.become_ready()
    stop = threading.Event()
    outgoing = GradientBuffer(agent, server, server, waiting=waiting, counts=count, stop=stop, check_stop=lambda: None)
    return agent, server, outgoing


def parameters(learner: GradientLearner) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in learner.model.tensors().items()}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name


@pytest.mark.parametrize(
    ("make", "batch"),
    [(a2c, trajectories), (filtered, trajectories), (ppo, trajectories), (dqn, transitions)],
    ids=["a2c", "a2c with filters", "ppo", "dqn"],
)
def test_one_agent_and_a_server_learn_what_a_learner_learns(
    make: Callable[[], Any], batch: Callable[[int], Any]
) -> None:
    alone = make()
    agent, server, outgoing = connect(make)
    for i in range(5):
        alone.optimize(i, batch(i))
        agent.optimize(i, batch(i))
        outgoing.finish_update()
    assert_same(parameters(agent), parameters(alone))
    assert_same(parameters(server.learner), parameters(alone))
    assert agent.version == server.published == len(server.pushes) + 1


@pytest.mark.parametrize(("status", "kept"), [("stale", 2), ("full", 2), ("not_finite", 1)])
def test_what_filters_counted_goes_again_unless_it_is_refused_for_good(status: str, kept: int) -> None:
    agent, server, outgoing = connect(filtered)
    for i, server.status in enumerate((status, "ok")):
        agent.optimize(i, trajectories(i))
        outgoing.finish_update()
    steps = trajectories(0).mask.numel()
    found: Any = server.learner.model
    assert float(found.obs_filter.moments[0].count) == kept * steps
    assert float(found.return_filter.moments.count) == kept * steps


def test_a_gradient_is_the_learner_s_own_of_the_same_trajectories() -> None:
    make = partial(a2c, gradients_norm_clipping=None)  # a step scales down what it clips
    learner, batch = make(), trajectories(3)
    agent, server, outgoing = connect(make)
    found: list[Gradients] = []
    learner.become_ready()
    learner.send_gradients(found.extend)
    learner.optimize(0, batch)
    agent.optimize(0, batch)
    outgoing.finish_update()
    assert [push.groups.keys() for push in server.pushes] == [{"model"}]
    assert_same(server.pushes[0].groups["model"], found[0].tensors)


def test_gradients_of_several_groups_travel_together_and_target_networks_follow() -> None:
    agent, server, outgoing = connect(ddpg)
    before = {name: each.clone() for name, each in agent.target.network.tensors().items()}
    action = torch.zeros(16, 1)
    for i in range(2):
        agent.optimize(i, transitions(i, action=action))
        outgoing.finish_update()
    assert [set(push.groups) for push in server.pushes] == [{"actor", "critic"}] * 2
    moved = {name for name, each in agent.target.network.tensors().items() if not torch.equal(each, before[name])}
    assert {name.split(".")[0] for name in moved} == {"actor", "critic"}


def test_what_is_not_the_model_s_is_stepped_where_it_is() -> None:
    agent, server, outgoing = connect(lambda: a2c(icm={}))
    before = {name: each.clone() for name, each in agent.dynamics.tensors().items()}
    agent.optimize(0, trajectories(0))
    assert any(not torch.equal(each, before[name]) for name, each in agent.dynamics.tensors().items())
    outgoing.finish_update()
    assert [set(push.groups) for push in server.pushes] == [{"model"}]


def test_a_push_says_its_version_its_steps_and_its_update() -> None:
    agent, server, outgoing = connect(a2c)
    for i in range(3):
        agent.optimize(i, trajectories(i))
        outgoing.finish_update()
    assert [(push.version, push.env_steps, push.episodes, push.updates) for push in server.pushes] == [
        (1, 32, 1, 1), (2, 32, 1, 2), (3, 32, 1, 3),
    ]  # fmt: skip
    assert outgoing.global_step == agent.global_step == 96


def test_several_steps_of_one_batch_wait_for_each_other() -> None:
    agent, server, outgoing = connect(ppo)
    agent.optimize(0, trajectories(0))
    outgoing.finish_update()
    assert [push.version for push in server.pushes] == [1, 2, 3, 4]  # 2 epochs of 2 minibatches


def test_an_agent_gives_its_part_of_a_mean_and_waits_then() -> None:
    agent, server, outgoing = connect(a2c, WaitLimits(1, 1, 5.0), combined=2)
    for i in range(4):
        agent.optimize(i, trajectories(i))
        outgoing.finish_update()
    assert [push.version for push in server.pushes] == [1, 1, 2, 2]
    assert agent.version == 3
    assert outgoing.metrics()["agent/gradient_timeouts_total"] == 0


def test_an_agent_goes_on_when_nothing_comes_of_its_gradient() -> None:
    agent, server, outgoing = connect(a2c, WaitLimits(0, 2, 0.01), is_dead=True)
    timeouts = []
    for i in range(5):
        agent.optimize(i, trajectories(i))
        outgoing.finish_update()
        timeouts.append(outgoing.metrics()["agent/gradient_timeouts_total"])
    assert timeouts == [1, 1, 2, 3, 4]  # with two further ones it would complete a mean of three by itself
    assert server.waits > 0


def test_an_agent_does_not_run_far_ahead_of_a_server_that_is_away() -> None:
    agent, _, outgoing = connect(a2c, WaitLimits(2, 2, 0.01), is_dead=True)
    timeouts = []
    for i in range(4):
        agent.optimize(i, trajectories(i))
        outgoing.finish_update()
        timeouts.append(outgoing.metrics()["agent/gradient_timeouts_total"])
    assert timeouts == [0, 0, 1, 2]


def test_a_server_that_was_restarted_and_knows_nothing_is_not_waited_for() -> None:
    agent, server, outgoing = connect(a2c, WaitLimits(0, 0, 60.0), combined=2)
    server.published, server._progress = 2, write_progress(5, 5, {"others": 9})
    agent.optimize(0, trajectories(0))
    outgoing.finish_update()
    assert agent.version == 2
    assert server.waits == 0


def test_nothing_is_awaited_of_a_gradient_that_was_refused() -> None:
    agent, server, outgoing = connect(a2c, WaitLimits(0, 0, 60.0))
    server.status = "stale"
    agent.optimize(0, trajectories(0))
    outgoing.finish_update()
    assert server.waits == 0
