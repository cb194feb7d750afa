"""Planted faults of models and learners, each found by its name in a rehearsal; and presets, in which nothing is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from surreal.config import Config, load_config
from surreal.learner import DQNLearner
from surreal.model import Model
from surreal.plugins.doctor.finding import Finding, Severity, ask
from surreal.plugins.doctor.model import Times, examine_model, parameters_fit
from surreal.run.lockstep.rehearsal import small_config

#: Long enough on any machine: a batch ends it.
TIMES = Times(60.0)


class Net(Model):
    """Two layers: nothing is wrong with it."""

    def __init__(self, action_space: Any) -> None:
        super().__init__()
        self.hidden = nn.Linear(4, 16)
        self.q = nn.Linear(16, int(action_space.n))

    def forward(self, obs: Any, state: Tensor | None = None, is_first: Tensor | None = None) -> Any:
        return self.q(self.features(obs))

    def features(self, obs: Any) -> Tensor:
        return torch.tanh(self.hidden(obs))


class GivesNan(Net):
    def features(self, obs: Any) -> Tensor:
        return torch.log(-1 - torch.relu(self.hidden(obs)))


class Unused(Net):
    def __init__(self, action_space: Any) -> None:
        super().__init__(action_space)
        self.forgotten = nn.Linear(4, 4)


class Detached(Net):
    def features(self, obs: Any) -> Tensor:
        return super().features(obs).detach()


class IgnoresObs(Net):
    def features(self, obs: Any) -> Tensor:
        return torch.tanh(self.hidden(torch.ones_like(obs)))


class RaisesInAct(Net):
    def forward(self, obs: Any, state: Tensor | None = None, is_first: Tensor | None = None) -> Any:
        return super().forward(obs[:, :3])


class TooFewActions(Net):
    def forward(self, obs: Any, state: Tensor | None = None, is_first: Tensor | None = None) -> Any:
        return super().forward(obs)[:, :1]


class RaisesInLearn(DQNLearner):
    def learn(self, i: int, batch: Any) -> Any:
        raise ArithmeticError("no more")


class LosesItsLoss(DQNLearner):
    def learn(self, i: int, batch: Any) -> Any:
        return super().learn(i, batch._replace(reward=batch.reward * float("nan")))


class DoesNothing(DQNLearner):
    def learn(self, i: int, batch: Any) -> Any:
        return {}


def configured(model: type[Model] = Net, learner: type[DQNLearner] = DQNLearner, *overrides: str) -> Config:
    classes = [f"model.class={__name__}.{model.__name__}", f"learner.class={__name__}.{learner.__name__}"]
    settings = ["model.args={}", "env.num_envs=2", "learner.batch_size=8", "sender.chunk_steps=16"]
    return load_config("cartpole-dqn", [*classes, *settings, *overrides])


def findings_of(config: Config, times: Times = TIMES, maxmemory_bytes: int | None = None) -> list[Finding]:
    checks = examine_model(config, times, maxmemory_bytes)
    return [finding for check in checks for finding in ask(check)]


def faults_of(findings: Sequence[Finding]) -> list[str]:
    return [finding.fault for finding in findings if finding.severity is not Severity.OK]


@pytest.mark.parametrize(
    ("model", "learner", "fault", "word"),
    [
        (GivesNan, DQNLearner, "model-not-finite", "q (Linear)"),
        (Unused, DQNLearner, "dead-parameters", "forgotten.weight"),
        (Detached, DQNLearner, "dead-parameters", "hidden.weight"),
        (IgnoresObs, DQNLearner, "model-ignores-obs", "same output"),
        (RaisesInAct, DQNLearner, "acting-fails", "RuntimeError: mat1 and mat2"),
        (TooFewActions, DQNLearner, "acting-fails", "the environment has 2 actions"),
        (Net, RaisesInLearn, "learning-fails", "ArithmeticError: no more"),
        (Net, LosesItsLoss, "loss-not-finite", "not finite"),
        (Net, DoesNothing, "nothing-learns", "none of 4"),
    ],
)
def test_the_fault_of_a_model_or_learner_is_found_and_no_other(
    model: type[Model], learner: type[DQNLearner], fault: str, word: str
) -> None:
    findings = findings_of(configured(model, learner))
    assert faults_of(findings) == [fault]
    assert word in next(finding.text for finding in findings if finding.fault)


@pytest.mark.parametrize("preset", ["cartpole-dqn", "cartpole-vtrace", "cartpole-novel-r2d2", "pendulum-td3"])
def test_nothing_is_found_in_presets_of_each_kind(preset: str) -> None:
    findings = findings_of(load_config(preset))
    assert faults_of(findings) == []
    assert any("updates move all of" in finding.text for finding in findings)


def test_a_learning_rate_that_is_much_too_low_is_found() -> None:
    findings = findings_of(configured(Net, DQNLearner, "learner.args.initial_learning_rate=1e-9"))
    assert faults_of(findings) == ["hardly-learns"]
    assert not any("updates move all of" in finding.text for finding in findings)


def test_what_a_run_would_refuse_is_said_in_its_words() -> None:
    (finding,) = findings_of(configured(Net, DQNLearner, "env.id=CartPol-v1"))
    assert finding.fault == "cannot-run" and "did you mean CartPole-v1?" in finding.text


def test_a_batch_that_does_not_come_is_a_hint() -> None:
    findings = findings_of(configured(Net, DQNLearner, "learner.batch_size=20000"), Times(0.01))
    assert faults_of(findings) == ["no-batch"]


def test_environments_that_are_elsewhere_leave_the_model_to_the_check_of_a_run() -> None:
    findings = findings_of(load_config("catch-rlx"))
    assert faults_of(findings) == [] and "elsewhere" in findings[0].text


def test_parameters_are_compared_with_the_memory_of_redis() -> None:
    config, tensors = load_config("cartpole-dqn"), {"weight": torch.zeros(1 << 20)}  # 4 MiB
    assert faults_of(list(parameters_fit(tensors, config, (64 + 11) << 20))) == ["parameters-too-large"]
    assert faults_of(list(parameters_fit(tensors, config, (64 + 13) << 20))) == []
    assert faults_of(list(parameters_fit(tensors, config, None))) == []


def test_a_rehearsal_is_small_whatever_the_run_is() -> None:
    sizes = ["replay.capacity=2000000", "replay.start_size=50000", "env.num_envs=64", "replay.samples_per_insert=1"]
    small = small_config(load_config("cartpole-dqn", [*sizes, "learner.ranks=2", "replay.shards=2"]))
    assert (small.env.num_envs, small.learner.ranks, small.num_shards) == (8, 1, 1)
    assert small.replay.start_size == 256 and small.replay.capacity == 20_000
