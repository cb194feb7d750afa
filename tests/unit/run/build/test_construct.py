"""Classes of a configuration become objects, and what does not fit is said in one sentence."""

from __future__ import annotations

import re
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from surreal.agent import Agent, QAgent
from surreal.base.errors import ConfigError
from surreal.base.pytorch import Module
from surreal.base.schedules import PerEnvSchedule
from surreal.config import Config, accepted_names, load_config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.shards import ReplayShards
from surreal.model import QFunction
from surreal.run.build.acting import build_agent, build_evaluator, build_greedy_agent, build_model
from surreal.run.build.check import check_names
from surreal.run.build.environments import Spaces, build_env, build_spaces
from surreal.run.build.learning import build_learner, build_replay
from surreal.run.launch.check import RunOptions, prepare

#: A server that nobody asks.
NOWHERE = ReplayShards.of(RedisClient("unix:///nowhere"))


@pytest.fixture(scope="module")
def spaces() -> Spaces:
    return build_spaces(load_config("cartpole-dqn"))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def config_of(*overrides: str) -> Config:
    return load_config("cartpole-dqn", overrides)


def test_model_gets_the_spaces_and_its_arguments_under_their_yaml_names(spaces: Spaces) -> None:
    model = build_model(config_of("model.args.hidden_sizes=[16]"), spaces)
    assert isinstance(model, QFunction)
    assert (model.hiddens, model.num_actions, model.is_materialized) == ((16,), 2, True)


def test_a_bare_module_is_a_model(spaces: Spaces, monkeypatch: pytest.MonkeyPatch) -> None:
    class Net(Module):
        def __init__(self, action_space: Any, width: int = 3) -> None:
            super().__init__()
            self.q = nn.Sequential(nn.Linear(4, width), nn.Linear(width, int(action_space.n)))

        def forward(self, obs: Any) -> Any:
            return self.q(obs)

    module = types.ModuleType("first_step")
    module.Net = Net  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "first_step", module)
    config = config_of("model.class=first_step.Net", "model.args={width: 5}")
    check_names(config)
    model = build_model(config, spaces)
    assert isinstance(model, Net)
    action = build_greedy_agent(config, model, spaces, rng=rng()).act(np.zeros(4, np.float32))
    assert action in (0, 1)
    assert model.tensors()["q.0.weight"].shape == (5, 4)


def test_models_of_one_seed_begin_with_the_same_parameters(spaces: Spaces) -> None:
    first, second, other = (build_model(config_of(f"seed={seed}"), spaces).tensors() for seed in (1, 1, 2))
    assert all(first[name].equal(second[name]) for name in first)
    assert not all(first[name].equal(other[name]) for name in first)


def test_arguments_win_over_what_is_offered(spaces: Spaces) -> None:
    model = build_model(config_of("model.args.action_space=5"), spaces)
    assert isinstance(model, QFunction)
    assert model.num_actions == 5


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.args.hiden_sizes=[16]", "did you mean model.args.hidden_sizes"),
        ("model.args.activation=rellu", "model: QFunction cannot be made"),
        ("model.class=surreal.model.QFunctoin", "did you mean surreal.model.QFunction"),
        ("model.class=surreal.agent.QAgent", "is not a surreal.base.pytorch.Module"),
    ],
)
def test_what_does_not_fit_is_a_config_error(spaces: Spaces, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_model(config_of(override), spaces)


@pytest.mark.parametrize(
    ("section", "name", "arguments", "message"),
    [
        ("model", "model.ActorCritic", "{lstm_type: Fancy}", "lstm_type is 'Fancy'; it must be Basic or Dilated"),
        ("model", "model.ActorCritic", "{hidden_sizes: [8, 0]}", "hidden_sizes is [8, 0]; each must be >= 1"),
        ("agent", "agent.PolicyAgent", "{noise_correlation: 1}", "noise_correlation is 1; it must be in [0, 1)"),
        ("learner", "learner.PPOLearner", "{clip_range: -3}", "clip_range is -3; it must be > 0"),
        ("learner", "learner.PPOLearner", "{entropy_type: all}", "entropy_type is 'all'; it must be Gauss or Origin"),
    ],
)
def test_an_argument_out_of_its_range_is_refused_with_its_place(
    tmp_path: Path, section: str, name: str, arguments: str, message: str
) -> None:
    file = tmp_path / "app.yaml"
    file.write_text(f"env: {{id: CartPole-v1}}\n{section}:\n  class: surreal.{name}\n  args: {arguments}\n")
    with pytest.raises(ConfigError, match=re.escape(f"{section}.args.{message} (app.yaml line 4)")):
        check_names(load_config(file))


@pytest.mark.parametrize(
    ("settings", "place"),
    [("{reward_scale: -1}", "learner.args.icm.reward_scale"), ("{reward_scal: 1}", "learner.args.icm")],
)
def test_a_setting_of_an_argument_is_named_with_its_argument(spaces: Spaces, settings: str, place: str) -> None:
    config = load_config("cartpole-a2c", [f"learner.args.icm={settings}"])
    with pytest.raises(ConfigError, match=r"A2CLearner cannot be made: icm") as caught:
        build_learner(config, build_model(config, spaces), None)
    assert caught.value.key == place


@pytest.mark.parametrize(
    ("name", "argument", "meant"),
    [
        ("PrioritizedReplay", "prority_exponent", "priority_exponent"),
        ("MixedReplay", "on_policy_fracton", "on_policy_fraction"),
        ("SequenceReplay", "burnin", "burn_in"),
    ],
)
def test_a_misspelt_argument_of_any_replay_is_found_before_a_run(name: str, argument: str, meant: str) -> None:
    config = config_of(f"replay.class=surreal.replay.{name}", f"replay.args.{argument}=1")
    with pytest.raises(ConfigError, match=f"did you mean replay.args.{meant}"):
        check_names(config)


def test_a_run_that_only_follows_is_refused_and_its_learner_is_not(tmp_path: Path) -> None:
    options = RunOptions("cartpole-dqn", ("replay.follow=true",), run_dir=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"replay.follow is true \(--set\), but a run needs a learner that owns"):
        prepare(options)
    assert not (tmp_path / "run").exists()
    replay = build_replay(config_of("replay.follow=true"), NOWHERE, seed=0)
    assert not replay.owner.owners


def test_what_is_meant_for_a_server_of_the_runs_own_does_not_go_with_a_named_one(tmp_path: Path) -> None:
    for setting in ("redis.maxmemory=1gb", "redis.appendonly=true"):
        options = RunOptions("cartpole-dqn", (setting,), run_dir=tmp_path / "run")
        assert prepare(options)
        with pytest.raises(ConfigError, match=r"but redis.address \(or --redis\) names a server"):
            prepare(replace(options, redis="host:6379"))


def test_agents_spread_over_the_ape_x_rates(spaces: Spaces) -> None:
    config = config_of("agent.exploration={type: ape_x}", "env.num_envs=2", "agent.count=2")
    model = build_model(config, spaces)
    rates = []
    for index in (0, 1, 2):
        agent = build_agent(config, model, spaces, index=index, rng=rng())
        assert isinstance(agent, QAgent)
        assert isinstance(agent.exploration, PerEnvSchedule)
        rates.append(agent.exploration.values.tolist())
    flat = rates[0] + rates[1]
    assert flat == sorted(flat, reverse=True)
    assert len(set(flat)) == 4
    assert rates[2] == rates[0]


def test_greedy_agent_never_explores(spaces: Spaces) -> None:
    config = config_of("agent.exploration=1.0")
    agent = build_greedy_agent(config, build_model(config, spaces), spaces, rng=rng())
    assert agent.mode == "eval"
    assert len({agent.act(np.ones(4, np.float32)) for _ in range(50)}) == 1


def test_users_class_needs_only_the_parameters_it_cares_for(spaces: Spaces, monkeypatch: pytest.MonkeyPatch) -> None:
    class Left(Agent):
        def __init__(self, model: Any, bias: int = 0) -> None:
            super().__init__(model)
            self.bias = bias

        def _act(self, obs: Any, explore: Any) -> Any:
            return np.zeros(len(explore), np.int64)

    module = types.ModuleType("their_agents")
    module.Left = Left  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "their_agents", module)
    config = config_of("agent.class=their_agents.Left", "agent.args={bias: 3}", "agent.exploration=null")
    agent = build_agent(config, build_model(config, spaces), spaces, index=0, rng=rng())
    assert isinstance(agent, Left)
    assert agent.bias == 3


def test_class_beside_the_yaml_file_is_found(spaces: Spaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside_the_file.py").write_text(
        "from surreal.model import QFunction\nclass Mine(QFunction):\n    pass\n"
    )
    (tmp_path / "app.yaml").write_text("env: {id: CartPole-v1}\nmodel: {class: beside_the_file.Mine}\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    config = load_config(tmp_path / "app.yaml")
    from surreal.config import add_python_path

    add_python_path(config.python_path)
    assert type(build_model(config, spaces)).__name__ == "Mine"


def test_keyword_arguments_are_taken_to_be_handed_on() -> None:
    class Base:
        def __init__(self, model: object, *, seed: int = 0) -> None: ...

    class Closed(Base):
        def __init__(self, model: object) -> None: ...

    class Open(Base):
        def __init__(self, model: object, *, extra: int = 0, **kwargs: Any) -> None: ...

    assert accepted_names(Base) == {"model": True, "seed": False}
    assert accepted_names(Closed) == {"model": True}
    assert accepted_names(Open) == {"model": True, "extra": False, "seed": False}


def test_evaluation_that_samples_needs_an_agent_with_a_sampler(spaces: Spaces) -> None:
    config = config_of("eval.sample=true")
    with pytest.raises(ConfigError, match=r"eval\.sample is true, but surreal\.agent\.QAgent has no sampler"):
        build_greedy_agent(config, build_model(config, spaces), spaces, rng=rng())
    config = load_config("cartpole-ppo", ["eval.sample=true"])
    agent = build_greedy_agent(config, build_model(config, spaces), spaces, rng=rng())
    env = build_env(config, training=False)
    evaluator = build_evaluator(config, agent, [env], rng=rng())
    assert agent.mode == "sample"
    first = evaluator.play(3)
    evaluator.rng = rng()
    assert evaluator.play(3) == first  # the samples belong to the round, too
    evaluator.rng = np.random.default_rng(1)
    assert evaluator.play(3) != first
    evaluator.close()
