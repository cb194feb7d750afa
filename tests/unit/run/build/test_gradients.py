"""What can be learned with gradients computed by agents, and what their processes change in the configuration."""

from __future__ import annotations

import pytest

from surreal.base.errors import ConfigError
from surreal.config import load_config
from surreal.learner import A2CLearner
from surreal.replay.archive import Manifest
from surreal.run.build.learning import build_gradient_learner, check_gradients
from surreal.run.build.lockstep import gradients_config, server_config, turn_steps, turn_trajectories
from surreal.run.lockstep.gradient_agent import wait_limits
from surreal.run.session.offline import offline_overrides

AGENTS = "learner.gradients=agents"


@pytest.mark.parametrize(
    "preset",
    ["cartpole-a3c", "pendulum-a3c", "cartpole-ppo", "cartpole-vtrace", "cartpole-pg", "cartpole-ipg"],
)
def test_learners_that_step_down_gradients_can_send_them(preset: str) -> None:
    config = load_config(preset, [AGENTS])
    check_gradients(config)
    gradients_config(config)


@pytest.mark.parametrize(
    "preset", ["pendulum-ddpg", "pendulum-td3", "pendulum-sac", "cartpole-dqn", "cartpole-per-dqn"]
)
def test_off_policy_learners_too_where_a_ratio_says_how_often(preset: str) -> None:
    check_gradients(config := load_config(preset, [AGENTS, "replay.samples_per_insert=8"]))
    gradients_config(config)


@pytest.mark.parametrize(
    ("preset", "overrides", "key", "message"),
    [
        ("cartpole-trpo", [], "learner.gradients", "does more to the model than step down gradients"),
        ("pendulum-a2c", ["learner.gradients_dtype=bfloat16"], "learner.gradients_dtype", "too coarse"),
        (
            "cartpole-ppo",
            ["learner.combine_gradients=avg", "agent.count=2"],
            "learner.num_gradients",
            "waits after each gradient, and agent.count, agent.per_process and rlx.servers make 2 agents",
        ),
        (
            "pendulum-sac",
            ["learner.combine_gradients=avg", "agent.count=2", "learner.args.updates_per_batch=2"],
            "learner.num_gradients",
            "SACLearner waits after each gradient",
        ),
    ],
)
def test_what_cannot_be_is_refused(preset: str, overrides: list[str], key: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        check_gradients(load_config(preset, [AGENTS, *overrides]))
    assert caught.value.key == key


def test_a_replay_without_a_ratio_is_refused() -> None:
    config = load_config("cartpole-dqn", [AGENTS, "replay.samples_per_insert=null"])
    with pytest.raises(ConfigError, match="agents it sets the ratio of updates to env steps"):
        gradients_config(config)


def test_an_archive_is_for_a_learner() -> None:
    manifest = Manifest.__new__(Manifest)  # nothing of it is looked at
    with pytest.raises(ConfigError, match="learned from without agents"):
        offline_overrides(load_config("pendulum-ddpg", [AGENTS]), manifest)


def test_rounds_are_whole_trajectories_where_nothing_else_is_said() -> None:
    given = load_config("cartpole-a3c", ["agent.round_steps=null", "replay.args.trajectory_steps=20"])
    assert gradients_config(given).agent.round_steps == 20


def test_a_server_publishes_after_each_update() -> None:
    config = server_config(load_config("pendulum-ddpg", [AGENTS]))
    assert config.broadcast.interval_updates == 1


@pytest.mark.parametrize(("agents", "ahead"), [(1, 3), (2, 1), (3, 1), (4, 0), (9, 0)])
def test_agents_give_a_mean_its_gradients_before_they_wait(agents: int, ahead: int) -> None:
    overrides = ["learner.combine_gradients=avg", f"agent.count={agents}"]
    assert wait_limits(load_config("cartpole-a3c", overrides)).ahead == ahead


def test_an_rlx_server_learns_from_a_batch_or_a_chunk_whoever_plays_it() -> None:
    servers = ["agent.count=0", "rlx.servers=2", "rlx.on_full=wait"]
    config = load_config("cartpole-a3c", [*servers, "learner.combine_gradients=avg"])
    assert (turn_steps(config), turn_trajectories(config)) == (16, config.learner.batch_size)
    assert wait_limits(config).ahead == 1
    config = load_config("pendulum-ddpg", [AGENTS, *servers, "env.num_envs=1"])
    assert (turn_steps(config), turn_trajectories(config)) == (config.sender.chunk_steps, 1)


def test_processes_of_a_run_must_have_the_same_learner_then() -> None:
    one, other = (load_config("cartpole-a3c", [f"learner.gamma={gamma}"]).shared() for gamma in (0.9, 0.99))
    assert one != other
    one, other = (load_config("cartpole-a2c", [f"learner.gamma={gamma}"]).shared() for gamma in (0.9, 0.99))
    assert one == other


def test_a_learner_for_sending_is_the_run_s_own() -> None:
    from surreal.run.build.acting import build_model
    from surreal.run.build.environments import build_spaces

    config = load_config("cartpole-a3c")
    learner = build_gradient_learner(config, build_model(config, build_spaces(config)), None)
    assert isinstance(learner, A2CLearner)
