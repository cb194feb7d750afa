"""Whether a run can start or continue: its objects are made, and one update is done, before any process starts."""

from __future__ import annotations

import inspect
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from surreal.base.checkpoint import save_checkpoint
from surreal.base.errors import CheckpointError, ConfigError, EnvError
from surreal.config import load_config
from surreal.envs.pools.game_pool import GamePool
from surreal.learner import DQNLearner
from surreal.model import ActorCritic
from surreal.run.build.acting import build_model
from surreal.run.build.environments import build_env, build_pool, build_spaces
from surreal.run.build.learning import build_learner
from surreal.run.lockstep.check import check_run
from surreal.run.lockstep.rehearsal import Rehearsal


def test_a_run_of_which_nothing_is_anywhere_cannot_go_on(tmp_path: Path) -> None:
    """Its folder may be empty on a new machine, if there are other places."""
    stores = json.dumps(["run", str(tmp_path / "backup")])
    config = load_config("cartpole-dqn", [f"checkpoint.stores={stores}"])
    with pytest.raises(CheckpointError, match=r"demo holds no run to resume, and .*backup/demo/checkpoints no"):
        check_run(config, resumed=tmp_path / "demo")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["env.num_envs=33"], "env.num_envs is 33, but game:tictactoe has 2 players, and each is an environment"),
        (
            ["env.id=pettingzoo:mpe2.simple_spread_v3", "env.num_envs=6", "learner.batch_size=6"],
            "self_play.enabled is true, but pettingzoo:mpe2.simple_spread_v3 has 3 players",
        ),
        (["self_play.reference=randon"], "player 'randon' is not a function; use `random`"),
        (["env.id=game:tictacto"], "did you mean game:tictactoe"),
    ],
)
def test_a_game_that_does_not_go_with_its_settings_is_refused_before_anything_starts(
    overrides: list[str], message: str
) -> None:
    with pytest.raises((ConfigError, EnvError), match=message):
        check_run(load_config("tictactoe-selfplay-ppo", overrides))


def test_a_game_without_self_play_is_one_policy_for_all_players() -> None:
    config = load_config(
        "cartpole-ppo",
        ["env.id=pettingzoo:mpe2.simple_tag_v3", "env.player_id=true", "eval.num_envs=1", "run.stop_at_return=null"],
    )
    check_run(config)
    spaces = build_spaces(config)
    with build_pool(config, index=0) as pool:
        assert isinstance(pool, GamePool) and pool.num_envs == config.env.num_envs == 8
        assert pool.obs_spec == spaces.obs_spec and pool.action_space == spaces.action_space
        assert pool.recv().env_ids.tolist() == list(range(8))
    env = build_env(config, training=False)
    assert env.observation_space == pool.observation_space


@pytest.mark.parametrize(
    ("preset", "overrides", "message"),
    [
        (
            "cartpole-dqn",
            ["learner.args.optimizer=nadm"],
            r"optimizer is 'nadm'; .* rmsprop_tf; did you mean nadam\? \(--set\)",
        ),
        (
            "cartpole-dqn",
            ["learner.args.learning_rate_factor={class: nowhere.Falling}"],
            "schedule class nowhere.Falling cannot be imported",
        ),
        (
            "cartpole-dqn",
            ["learner.args.learning_rate_factor=[[0, 1.0], [10, -1.0]]"],
            r"learning_rate_factor is -1.0 at step 10; it must be finite and >= 0 \(--set\)",
        ),
        (
            "cartpole-dqn",
            ["agent.exploration={class: surreal.agent.QAgent}"],
            "schedule class surreal.agent.QAgent is not a subclass of surreal.base.schedules.Schedule",
        ),
        ("cartpole-ppo", ["learner.args.clip_range=-3"], r"clip_range is -3; it must be > 0 \(--set\)"),
        ("cartpole-dqn", ["env.rate_hz=50", "env.safe_action=2"], r"safe_action is 2, which is not .* Discrete\(2\)"),
        ("cartpole-ppo", ["learner.args.mini_batch=0"], r"mini_batch is 0; it must be >= 1 \(--set\)"),
        ("cartpole-trpo", ["model.args.value_hidden_sizes=null"], "the model's value shares the policy's network"),
        (
            "cartpole-dqn",
            ["checkpoint.restore=runs/nothing/best"],
            "checkpoint.restore is 'runs/nothing/best': .* holds",
        ),
    ],
)
def test_what_only_a_constructor_or_an_update_refuses_is_said_with_its_setting(
    preset: str, overrides: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_run(load_config(preset, overrides))


class OneAxis(ActorCritic):
    """A network that takes observations [B, ...] only."""

    def __init__(self, action_space: Any) -> None:
        super().__init__(action_space=action_space)
        self.mix = nn.Linear(4, 4)

    def forward(self, obs: Any, *args: Any, **options: Any) -> Any:
        (_, _) = obs.shape  # fails for [T + 1, B, ...]
        return super().forward(self.mix(obs), *args, **options)


class FailsInLearn(DQNLearner):
    def learn(self, i: int, batch: Any) -> Any:
        raise ArithmeticError("no more")


def line_of(function: object, text: str) -> int:
    lines, first = inspect.getsourcelines(function)  # type: ignore[arg-type]
    return first + next(number for number, line in enumerate(lines) if text in line)


def test_a_model_that_cannot_take_trajectories_is_refused_with_their_shape_and_its_own_line() -> None:
    config = load_config("cartpole-ppo", [f"model.class={__name__}.OneAxis", "model.args={}"])
    with pytest.raises(ConfigError) as caught:
        check_run(config)
    message, line = str(caught.value), line_of(OneAxis.forward, "(_, _)")
    assert re.search(r"for observations \[\d+, 4, 4\] .* while surreal.learner.PPOLearner updates it", message), message
    assert f"(test_check.py line {line}: (_, _) = obs.shape" in message and message.endswith("(--set)")


def test_an_update_that_raises_is_refused_with_the_users_own_line() -> None:
    config = load_config("cartpole-dqn", [f"learner.class={__name__}.FailsInLearn"])
    line = line_of(FailsInLearn.learn, "raise")
    problem = (
        r"learner.class .*FailsInLearn fails while it updates surreal.model.QFunction: "
        rf"ArithmeticError: .*\.py line {line}: raise Ar"
    )
    with pytest.raises(ConfigError, match=problem):
        check_run(config)


@pytest.mark.parametrize(
    "preset",
    [
        "cartpole-per-dqn",
        "cartpole-r2d2",
        "cartpole-trpo",
        "cartpole-a3c",
        "pendulum-ipg",
        "tictactoe-selfplay-ppo",
        "catch-rlx",
    ],
)
def test_each_kind_of_run_does_an_update(
    preset: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    batches = []
    learn = Rehearsal.learn
    monkeypatch.setattr(Rehearsal, "learn", lambda self, batch: batches.append(batch) or learn(self, batch))
    check_run(load_config(preset))
    assert len(batches) == 1
    assert caplog.text == ""  # a learner checks its run, and the log is about this run


def test_a_run_may_begin_with_the_folder_of_another(tmp_path: Path) -> None:
    config = load_config("cartpole-dqn", [f"checkpoint.restore={tmp_path}"])
    with pytest.raises(ConfigError, match=f"is '{tmp_path}': {tmp_path} has neither eval/best.safetensors nor a check"):
        check_run(config)
    model = build_model(config, build_spaces(config))
    save_checkpoint(
        tmp_path / "eval" / "best.safetensors", model.tensors(), {"kind": "policy", "model": model.header()}, step=1
    )
    check_run(config)
    with pytest.raises(ConfigError, match=r"checkpoint\.restore is .*"):
        check_run(load_config("cartpole-dqn", [f"checkpoint.restore={tmp_path}", "model.args.hidden_sizes=[7]"]))


def test_a_run_that_continues_begins_with_its_own_checkpoint(tmp_path: Path) -> None:
    """By its file name, or the newest whatever the setting names that the run began with."""
    name = "0000000050.safetensors"
    config = load_config("cartpole-dqn", [f"checkpoint.restore={name}"])
    learner = build_learner(config, build_model(config, build_spaces(config)), None)
    state = learner.state_dict()
    metadata = {"kind": "learner", "state": state["state"]}
    save_checkpoint(tmp_path / "checkpoints" / name, state["tensors"], metadata, step=50)
    (tmp_path / "app.yaml").touch()
    check_run(config, resumed=tmp_path)
    check_run(load_config("cartpole-dqn", ["checkpoint.restore=s3://gone/best"]), resumed=tmp_path)
    with pytest.raises(CheckpointError, match=r"does not exist in .*checkpoints"):
        check_run(load_config("cartpole-dqn", ["checkpoint.restore=0000000060.safetensors"]), resumed=tmp_path)
    with pytest.raises(ConfigError, match=f"restore is '{name}'"):
        check_run(config)
