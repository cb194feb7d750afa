"""Files of the ancestor: each key becomes a setting of ours, or is named with the reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from surreal.base.errors import ConfigError
from surreal.config import load_config
from surreal.plugins.apps.importing import convert, import_file, read_tables
from surreal.plugins.apps.importing.rules import Draft
from surreal.run.build.check import check_names
from surreal.run.lockstep.check import check_run

SERVERS = {
    "version": "1.1.0",
    "environment": {"run": "python environment/training.py", "max_episodes": 7, "infinite_run": True, "steps": 5},
    "relaax-rlx-server": {
        "bind": "0.0.0.0:7007", "log_level": "CRITICAL", "timeout": 120, "protocol": "twisted",
        "bind_by_env_var": "PORT", "profile_dir": "p",
    },
    "relaax-parameter-server": {
        "--bind": "localhost:7000", "--checkpoint-dir": "/cp", "checkpoint-aws-s3": ["bucket", "key"], "aws_keys": "k",
        "checkpoint_step_interval": 9, "checkpoint_time_interval": 60, "checkpoints_to_keep": 4,
        "best_checkpoints_to_keep": 2, "log-level": "CRITICAL",
    },
    "relaax-metrics-server": {
        "bind": "localhost:7002", "metrics_dir": "m", "metrics": {"action": True}, "enable_unknown_metrics": False,
        "log_metrics_to_console": True,
    },
    "relaax-wsproxy": {"bind": "localhost:9000"},
}  # fmt: skip
#: What all algorithms may say.
COMMON = {
    "path": "algorithm", "rewards_gamma": 0.9, "hidden_sizes": [16, 8], "activation": "relu6", "avg_in_num_batches": 3,
    "input": {"shape": [4], "history": 2, "use_convolutions": False, "universe": False},
    "output": {"continuous": False, "action_size": 3, "scale": 1.0, "action_low": [], "action_high": []},
}  # fmt: skip
GRADIENTS = {"combine_gradients": "dc", "num_gradients": 4, "dc_lambda": 0.05, "dc_history": 20}
OPTIMIZER = {
    "optimizer": "RMSProp", "RMSProp": {"decay": 0.9, "epsilon": 0.1}, "initial_learning_rate": "1e-3",
    "learning_rate_end": 0.0, "use_linear_schedule": True, "max_global_step": 1000,
}  # fmt: skip
ADVANTAGE = {"critic_scale": 0.5, "normalize_advantage": True, "gradients_norm_clipping": 40, "use_filter": True}
LSTM = {"use_lstm": True, "lstm_type": "Dilated", "lstm_num_cores": 4}
#: Every key of every algorithm.
ALGORITHMS: dict[str, dict[str, Any]] = {
    "policy_gradient": {"batch_size": 10, **OPTIMIZER, **GRADIENTS},
    "da3c": {
        "batch_size": 8, "gae_lambda": 0.9, "entropy_beta": 0.02, "entropy_type": "Origin", "policy_clip": False,
        "critic_clip": 0.3, "hogwild": False, "use_icm": True, "icm": {"nu": 0.5, "beta": 0.3, "lr": 0.002}, "seed": 5,
        **OPTIMIZER, **GRADIENTS, **ADVANTAGE, **LSTM,
    },
    "dppo": {
        "batch_size": 200, "mini_batch": 50, "clip_e": 0.3, "lambda": 0.97, "entropy": 0.01, "l2_coeff": None,
        "policy_iterations": 4, "value_func_iterations": 6, "vf_clipped_loss": True, "schedule_step": "update",
        "use_icm": True, "icm": {"nu": 0.1}, **OPTIMIZER, "optimizer": {"epsilon": 1e-4}, **GRADIENTS, **ADVANTAGE,
    },
    "ddpg": {
        "batch_size": 32, "buffer_size": 5000, "loop_size": 2, "actor_learning_rate": 1e-3,
        "critic_learning_rate": 2e-3, "tau": 0.01, "l2": True, "l2_decay": 0.02, "ou_noise": True, "use_filter": False,
        "exploration": {"ou_mu": 0.0, "ou_theta": 0.1, "ou_sigma": 0.3, "tau": 25, "rnd_seed": 1}, "no_ps": False,
        "output": {"continuous": True, "action_size": 1, "scale": 2.0},
    },
    "dqn": {
        "batch_size": 32, "double_dqn": True, "dueling_dqn": True, "start_sample_step": 100, "alpha": 0.7,
        "update_target_weights_interval": 500, "replay_buffer_size": 2000, "gradients_norm_clipping": False,
        "eps": {"initial": 1.0, "end": 0.02, "decay_steps": [1000, 3000], "stochastic": True}, **OPTIMIZER,
        "output": {"continuous": False, "action_size": 3, "q_values": False},
    },
    "trpo": {
        "subtype": "trpo-d1", "use_filter": False, "async": False, "return_probs": False,
        "PG_OPTIONS": {
            "timestep_limit": 200, "n_iter": 50, "rewards_gamma": 0.99, "gae_lambda": 0.97, "timesteps_per_batch": 1000,
            "episodes_per_batch": 5,
        },
        "TRPO": {"cg_damping": 0.2, "max_kl": 0.02, "linesearch_type": "Adaptive"},
        "PPO": {"clip_e": 0.2, "learning_rate": 0.001, "n_epochs": 4, "minibatch_size": 128},
    },
}  # fmt: skip


def file_of(name: str, folder: Path, **changes: Any) -> Path:
    path = folder / "theirs.yaml"
    algorithm = {"name": name, **COMMON, **ALGORITHMS[name], **changes}
    path.write_text(yaml.safe_dump({**SERVERS, "algorithm": algorithm}))
    return path


def imported(name: str, **algorithm: Any) -> Draft:
    return convert({"algorithm": {"name": name, **algorithm}}, name="app")


@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_key_is_dropped_in_silence_and_the_result_can_run(name: str, tmp_path: Path) -> None:
    result = import_file(file_of(name, tmp_path), tmp_path / "app.yaml")
    assert not [key for key, reason in result.left_out if "it is not a key" in reason]
    config = load_config(tmp_path / "app.yaml")
    check_names(config)
    assert (config.rlx.port, config.rlx.timeout_s, config.log_level) == (7007, 120.0, "critical")
    assert config.checkpoint.stores == ["run", "/cp", "s3://bucket/key"]
    assert config.checkpoint.checkpoints_to_keep == 4
    assert (config.environment.run, config.environment.max_episodes) == ("python environment/training.py", 7)
    assert config.environment.model_extra == {"steps": 5}
    assert config.env.frame_stack == 2
    assert config.learner.gamma in (0.9, 0.99)
    named = dict(result.left_out)
    for key in ("wsproxy", "rlx_server.protocol", "parameter_server.aws_keys", "algorithm.path"):
        assert named[key]


def test_values_arrive_where_they_belong(tmp_path: Path) -> None:
    import_file(file_of("da3c", tmp_path), tmp_path / "app.yaml")
    config = load_config(tmp_path / "app.yaml")
    assert config.learner.args["icm"] == {"reward_scale": 0.5, "forward_share": 0.3, "learning_rate": 0.002}
    assert (config.learner.args["optimizer"], config.learner.args["decay"]) == ("rmsprop_tf", 0.9)
    assert config.model.args["hidden_sizes"] == [16]
    assert config.model.args["lstm_size"] == 8
    assert (config.agent.round_steps, config.learner.batch_size, config.seed) == (8, 1, 5)
    learner = config.learner
    assert (learner.gradients, learner.combine_gradients, learner.dc_lambda, learner.dc_history) == (
        "agents",
        "dc",
        0.05,
        20,
    )


@pytest.mark.parametrize(
    ("given", "settings", "left_out"),
    [
        ({}, {"learner.gradients": "agents"}, []),
        ({"combine_gradients": "fifo", "num_gradients": 4}, {"learner.combine_gradients": "fifo"}, ["num_gradients"]),
        (
            {"combine_gradients": "avg", "num_gradients": 2, "dc_lambda": 0.1},
            {"learner.combine_gradients": "avg", "learner.num_gradients": 2},
            ["dc_lambda"],
        ),
        (
            {"combine_gradients": "dc", "dc_lambda": 0.1, "dc_history": 7},
            {"learner.combine_gradients": "dc", "learner.dc_lambda": 0.1, "learner.dc_history": 7},
            [],
        ),
    ],
)
def test_da3c_is_a3c_whose_gradients_are_combined_as_before(
    given: dict[str, Any], settings: dict[str, Any], left_out: list[str]
) -> None:
    draft = imported("da3c", **given)
    found = {name: value for name, value in draft.settings.items() if "gradients" in name or ".dc_" in name}
    assert found == {"learner.gradients": "agents", **settings}
    assert [key for key, _ in draft.left_out] == [f"algorithm.{key}" for key in left_out]


def test_batches_of_steps_are_cut_into_trajectories(tmp_path: Path) -> None:
    import_file(file_of("dppo", tmp_path), tmp_path / "app.yaml")
    config = load_config(tmp_path / "app.yaml")
    assert (config.learner.batch_size, config.agent.round_steps) == (2, 100)
    assert config.learner.args["epsilon"] == 1e-4
    assert config.learner.args["icm"] == {"reward_scale": 0.1, "forward_share": 0.2, "learning_rate": 1e-3}
    assert config.model.args["value_hidden_sizes"] == [16, 8]


def test_replays_and_noise(tmp_path: Path) -> None:
    import_file(file_of("ddpg", tmp_path), tmp_path / "app.yaml")
    config = load_config(tmp_path / "app.yaml")
    assert config.replay.samples_per_insert == 64.0
    assert config.learner.args["l2_coeff"] == 0.02
    assert config.agent.args == {"noise": "ornstein_uhlenbeck", "noise_theta": 0.1}
    space = config.env.action_space
    assert space is not None
    assert space.model_dump(exclude_none=True)["high"] == 2.0
    draft = imported("dqn", eps={"initial": 1.0, "end": 0.1, "decay_steps": [10, 30]}, alpha=3)
    assert draft.settings["agent.exploration"] == {"type": "linear", "start": 1.0, "end": 0.1, "steps": 20}
    assert draft.settings["replay.args.priority_exponent"] == 1.0


def test_a_subtype_of_trpo_may_be_ppo() -> None:
    draft = imported("trpo", subtype="ppo", PPO={"n_epochs": 9}, TRPO={"max_kl": 0.1})
    assert draft.settings["learner.class"] == "surreal.learner.PPOLearner"
    assert draft.settings["learner.args.policy_iterations"] == 9
    assert "ppo, which does not have it" in dict(draft.left_out)["algorithm.TRPO.max_kl"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"use_convolutions": True}, "universe"),
        ({"use_convolutions": True, "universe": False}, "a3c"),
        (
            {"use_convolutions": True, "layers": [{"type": "convolution", "n_filters": 8, "activation": None}]},
            [
                {
                    "type": "convolution", "n_filters": 8, "filter_size": [3, 3], "stride": [2, 2], "border": "same",
                    "activation": "none",
                }
            ],
        ),
    ],
)  # fmt: skip
def test_convolutions(given: dict[str, Any], expected: Any) -> None:
    draft = imported("da3c", input={"shape": [42, 42], **given})
    assert draft.settings["model.args.convolutions"] == expected
    assert draft.settings["env.observation_space"]["high"] == 1.0


def test_kernel_activations() -> None:
    draft = imported("da3c", activation="kaf", KAF={"boundary": 3.0, "size": 10, "kernel": "rbf2d", "gamma": 1.0})
    assert draft.settings["model.args.activation"] == {
        "type": "kaf", "boundary": 3.0, "size": 10, "kernel": "rbf2d", "gamma": 1.0,
    }  # fmt: skip


def test_dead_keys_of_the_ancestors_own_templates_are_named() -> None:
    reasons = dict(imported("da3c", combine_gradient="fifo", schedule="linear").left_out)
    assert "algorithm.combine_gradients is" in reasons["algorithm.combine_gradient"]
    assert "it is not a key" in reasons["algorithm.schedule"]


def test_files_of_2017() -> None:
    draft = convert(
        {
            "relaax-rlx-server": {"--bind": "localhost:7001", "--parameter-server": "localhost:7000"},
            "algorithm": {
                "path": "../relaax/algorithms/da3c", "action_size": 4, "state_size": [84, 84], "episode_len": 5,
                "gpu": False, "lstm": True, "RMSProp": {"gradient_norm_clipping": 40},
            },
        },
        name="boxing",
    )  # fmt: skip
    assert draft.settings["env.action_space"] == {"type": "discrete", "n": 4}
    assert draft.settings["replay.args.trajectory_steps"] == 5
    assert draft.settings["learner.args.gradients_norm_clipping"] == 40
    assert draft.settings["learner.args.optimizer"] == "rmsprop_tf"
    assert draft.settings["model.args.convolutions"] == "a3c"
    assert (draft.settings["env.frame_stack"], draft.settings["model.args.lstm_size"]) == (4, 256)
    assert [key for key, _ in draft.left_out] == ["rlx_server.parameter_server"]
    assert draft.taken == 8


def test_the_continuous_a3c_of_2017_keeps_its_network_and_filter(tmp_path: Path) -> None:
    section = {"path": "../relaax/algorithms/da3c_cont", "action_size": 4, "state_size": [24], "entropy_beta": 0.01}
    (tmp_path / "old.yaml").write_text(yaml.safe_dump({"algorithm": section}))
    assert import_file(tmp_path / "old.yaml", tmp_path / "app.yaml").left_out == []
    config = load_config(tmp_path / "app.yaml")
    check_names(config)
    assert (config.env.action_space.type, config.env.action_space.shape) == ("box", [4])  # type: ignore[union-attr]
    expected = {"hidden_sizes": [128], "lstm_size": 128, "use_lstm": True, "normalize_obs": True}
    assert config.model.args.items() >= expected.items()
    assert config.learner.args["entropy_beta"] == 0.01  # as the file says
    assert config.learner.args["initial_learning_rate"] == 1e-4


def test_a_clip_of_the_loss_is_not_the_clip_of_a_ratio() -> None:
    draft = imported("da3c", policy_clip=0.5, critic_clip=False)
    assert not [key for key in draft.settings if "clip" in key]
    assert [key for key, _ in draft.left_out] == ["algorithm.policy_clip"]


def test_settings_of_rmsprop_count_only_for_rmsprop() -> None:
    section = {"decay": 0.9, "epsilon": 0.1}
    for given in ({"optimizer": "RMSProp"}, {"episode_len": 5}):
        draft = imported("da3c", RMSProp=section, **given)
        assert draft.settings["learner.args.optimizer"] == "rmsprop_tf"
        assert (draft.settings["learner.args.decay"], draft.settings["learner.args.epsilon"]) == (0.9, 0.1)
    for given in ({"optimizer": "Adam"}, {}):
        draft = imported("da3c", RMSProp=section, **given)
        assert "learner.args.epsilon" not in draft.settings
        assert [key for key, _ in draft.left_out] == ["algorithm.RMSProp.decay", "algorithm.RMSProp.epsilon"]


@pytest.mark.parametrize("steps", [1000, [500, 1500]])
def test_one_schedule_for_all_agents_is_reported(steps: int | list[int]) -> None:
    draft = imported("dqn", eps={"initial": 1.0, "end": 0.1, "decay_steps": steps, "stochastic": True})
    assert draft.settings["agent.exploration"]["steps"] == 1000
    assert "algorithm.eps.stochastic" in [key for key, _ in draft.left_out]


def test_the_page_names_every_key() -> None:
    page = (Path(__file__).parents[3] / "docs" / "apps.md").read_text()
    section = page.partition("## From RELAAX")[2].replace("-", "_")
    known = read_tables()
    tables = [known["servers"], known["common"], *(each["keys"] for each in known["algorithms"].values())]
    words = set(re.findall(r"[A-Za-z0-9_]+", section))
    missing = {key for table in tables for key in table if not words & {*key.split(".")}}
    assert not missing


def test_what_is_none_of_the_ancestors_is_refused_and_an_earlier_file_kept(tmp_path: Path) -> None:
    path = tmp_path / "app.yaml"
    for text, message in (
        ("version: 1\nenv: {id: CartPole-v1}\n", "is already an app.yaml of Surreal"),
        ("a: 1\n", "no section algorithm"),
        ("algorithm: {name: da4c}\n", "did you mean da3c"),
        ("- 1\n", "has no sections"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=message):
            import_file(path, path)
        assert path.read_text() == text
    path.write_text("algorithm: {name: da3c}\n")
    assert import_file(path, path).kept == [tmp_path / "app.yaml.~1~"]
    assert load_config(path).learner.class_path == "surreal.learner.A2CLearner"
    with pytest.raises(ConfigError, match="surreal config import FILE"):
        path.write_text("version: 1.1.0\n")
        load_config(path)


def test_the_printed_layers_run_with_states_whose_channels_are_last(tmp_path: Path) -> None:
    layer = {
        "type": "convolution", "activation": "elu", "n_filters": 8, "filter_size": [3, 3], "stride": [2, 2],
        "border": "valid",
    }  # fmt: skip
    inputs = {"shape": [7, 7, 3], "use_convolutions": True, "layers": [layer, layer], "history": 2}
    result = import_file(file_of("da3c", tmp_path, input=inputs, use_icm=False), tmp_path / "app.yaml")
    assert "input.shape" not in dict(result.left_out)
    check_run(load_config(tmp_path / "app.yaml"))
