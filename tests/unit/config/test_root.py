"""Conflicts between settings, derived values, and the documentation of every setting."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from surreal.base.errors import ConfigError
from surreal.config import Config, load_config
from surreal.config.preset_files import preset_names
from surreal.config.problems import all_keys
from surreal.config.schema.fields import Section, parse_size

SECTIONS = {
    *("env", "model", "agent", "learner", "replay", "sender", "broadcast", "rlx", "redis", "eval", "checkpoint", "run"),
    *("environment", "relaax_rlx_server", "parameter_server", "self_play"),
}
GAME = ["env.id=game:tictactoe"]
RAW = ("env.observation_space=raw", "env.action_space={type: discrete, n: 2}")


@pytest.mark.parametrize(
    ("overrides", "key", "message"),
    [
        (["learner.n_step=5", "sender.lookahead=2"], "sender.lookahead", "needs 4; leave lookahead out or raise it"),
        (
            ["replay.samples_per_insert=null", "replay.samples_per_insert_tolerance=9"],
            "replay.samples_per_insert_tolerance",
            "samples_per_insert is not set",
        ),
        (["replay.max_bytes=220mb"], "replay.max_bytes", "what redis.maxmemory, 268435456, leaves"),
        (["sender.chunk_max_bytes=9mb"], "sender.chunk_max_bytes", "an eighth of replay.max_bytes"),
        (
            ["redis.appendonly=true", "redis.address=h:1"],
            "redis.appendonly",
            "redis.address (or --redis) names a server",
        ),
        (["redis.address=h:1"], "redis.maxmemory", "redis.address (or --redis) names a server"),
        (["learner.combine_gradients=avg"], "learner.combine_gradients", "learner.gradients is learner"),
        (["parameter_server.servers=2"], "parameter_server.servers", "set gradients to agents, or leave servers out"),
        (["agent.per_process=2"], "agent.per_process", "learner.gradients is learner"),
        (["learner.gradients=agents", "learner.dc_lambda=0.1"], "learner.dc_lambda", "combine_gradients is fifo"),
        (["learner.gradients=agents", "run.deterministic=true"], "learner.gradients", "one process acts and learns"),
        (
            ["learner.gradients=agents", "rlx.servers=1", "rlx.on_full=drop"],
            "rlx.on_full",
            "computes from it, while sessions wait",
        ),
        (
            ["learner.gradients=agents", "env.observation_space=raw", "env.action_space={type: discrete, n: 2}"],
            "env.observation_space",
            "raw states cannot be stored",
        ),
        (["learner.gradients=agents", "replay.shards=2"], "replay.shards", "set it to 1"),
        (
            ["learner.gradients=agents", "learner.ranks=2", "replay.shards=2"],
            "learner.ranks",
            "no learner has ranks; leave it out",
        ),
        (["learner.gradients=agents", "learner.threads=2"], "learner.threads", "no learner has threads; leave it out"),
        ([*GAME, "env.pool=subproc"], "env.pool", "are played in the agent's process; set it to local"),
        ([*GAME, "env.wrappers=[{name: reward_clip}]"], "env.wrappers", "wrap the game in your own module"),
        ([*GAME, "env.frame_stack=4"], "env.frame_stack", "whose frames are not stacked"),
        ([*GAME, "rlx.servers=1"], "rlx.servers", "clients bring environments of one"),
        (["env.player_id=true"], "env.player_id", "is not a game of several players; leave it out"),
        (["self_play.enabled=true"], "self_play.enabled", "is not a game; name one, such as game:tictactoe"),
        (["self_play.versions=5"], "self_play.versions", "self_play.enabled is false; set it to true"),
        (
            [*GAME, "self_play.enabled=true", "self_play.sampling=uniform", "self_play.pfsp_exponent=1.0"],
            "self_play.pfsp_exponent",
            "sampling is uniform; leave it out",
        ),
        (
            [*GAME, "self_play.enabled=true", "run.deterministic=true"],
            "self_play.enabled",
            "when the results of games arrive is up to the clock",
        ),
        (
            [*GAME, "self_play.enabled=true", "learner.gradients=agents"],
            "self_play.enabled",
            "learner.gradients is agents; set that to learner",
        ),
        (
            [*GAME, "self_play.enabled=true", "replay.follow=true"],
            "self_play.enabled",
            "the run's first learner keeps the versions",
        ),
        (["env.num_workers=2"], "env.num_workers", "only subproc and envpool have workers"),
        (["env.num_workers=9", "env.pool=subproc"], "env.num_workers", "it must be <= env.num_envs, 8"),
        (["env.pool=vector", "env.wrappers=[{name: reward_clip}]"], "env.pool", "takes no env.wrappers"),
        (["eval.enabled=false"], "run.stop_at_return", "nothing would measure the return"),
        (
            ["eval.enabled=false", "run.stop_at_return=null", "eval.record_video_every=1"],
            "eval.record_video_every",
            "nothing would record",
        ),
        (["env.pool=vector", "agent.show_ui=true"], "agent.show_ui", "draw in no window"),
        (
            ["replay.mirror_max_bytes=1gb", "replay.observations=remote"],
            "replay.mirror_max_bytes",
            "only auto asks for it",
        ),
        (["agent.round_steps=5", "broadcast.interval_updates=20"], "broadcast.interval_updates", "set it to 1"),
        (["agent.round_steps=5", "broadcast.interval_updates=1"], "learner.batch_size", "have sent 16 trajectories"),
        (
            [
                *["agent.round_steps=5", "broadcast.interval_updates=1", "learner.batch_size=16"],
                "replay.args={trajectory_steps: 9}",
            ],
            "agent.round_steps",
            "make them the same",
        ),
        (["env.pool=vector", "env.interventions=true"], "env.interventions", "env.pool is vector"),
        ([*GAME, "env.interventions=true"], "env.interventions", "is a game of several players"),
        (["env.safe_action=0.0"], "env.safe_action", "env.rate_hz is not set"),
        (["env.rate_hz=50", "agent.count=0", "rlx.servers=1"], "env.rate_hz", "clients of RLX servers keep their own"),
        (["env.rate_hz=50", "run.deterministic=true"], "env.rate_hz", "goes by counts, not by the clock"),
        (["env.rate_hz=50", "learner.gradients=agents"], "env.rate_hz", "set it to learner"),
        (["rlx.max_amend_s=5", "learner.gradients=agents"], "rlx.max_amend_s", "servers learn at once"),
        ([*GAME, "env.rate_hz=50"], "env.rate_hz", "is a game of several players; leave it out"),
        (
            ["agent.round_steps=5", "broadcast.interval_updates=1", "learner.batch_size=16", "env.rate_hz=50"],
            "env.rate_hz",
            "makes agents wait for parameters",
        ),
        (["rlx.client_envs=4"], "rlx.client_envs", "but rlx.clients is 0"),
        (["rlx.servers=1", "rlx.client_envs=4"], "rlx.client_envs", "but rlx.clients is 0"),
        (
            ["agent.round_steps=5", "broadcast.interval_updates=1", "learner.ranks=2", "replay.shards=2"],
            "learner.batch_size",
            "have sent 8 trajectories to a rank",
        ),
        (["learner.ranks=3", "replay.shards=2", "agent.count=3"], "learner.ranks", "set replay.shards to 3 or more"),
        (["learner.ranks=3", "replay.shards=3"], "learner.ranks", "set agent.count to 3 or more"),
        (["learner.ranks=2", "replay.shards=2", "replay.args={shards: [0]}"], "replay.args", "leave one of them out"),
        (["agent.round_timeout_s=9"], "agent.round_timeout_s", "agent.round_steps is not set"),
        (["agent.round_steps=5", "agent.count=0", "rlx.servers=1"], "agent.round_steps", "set on_full to wait"),
        (["environment.run=make play"], "environment.run", "no server would answer it"),
        (["sender.on_full=drop", "sender.wait_timeout_s=9"], "sender.wait_timeout_s", "sender.on_full and rlx.on_full"),
        ([*RAW, "rlx.largest_state=10"], "rlx.largest_state", "env.observation_space is raw"),
        ([*RAW, "rlx.outside_bounds=refuse"], "rlx.outside_bounds", "env.observation_space is raw"),
        (["env.wrappers=[{name: a, class: b.C}]"], "env.wrappers.0", "either a name or a class"),
        (["env.wrappers=[{}]"], "env.wrappers.0", "either a name or a class"),
    ],
)
def test_conflict_is_refused_with_key_and_remedy(overrides: list[str], key: str, message: str) -> None:
    base = ["replay.capacity=50_000", "replay.samples_per_insert=16", "sender.chunk_steps=64", "learner.batch_size=128"]
    sizes = ["redis.maxmemory=256mb", "replay.max_bytes=64mb", "replay.start_size=1000", "agent.count=2"]
    with pytest.raises(ConfigError) as caught:
        load_config("cartpole-dqn", [*base, *sizes, "env.num_envs=8", *overrides])
    assert caught.value.key == key
    assert message in str(caught.value)
    assert "(--set)" in str(caught.value) or "(cartpole-dqn.yaml line" in str(caught.value)


def test_memory_of_a_foreign_server_is_not_judged() -> None:
    for key in ("redis.address", "redis.replay_address"):
        assert load_config("cartpole-dqn", ["replay.max_bytes=999gb", f"{key}=host:6379"])


@pytest.mark.parametrize(
    ("overrides", "memory"),
    [
        ([], 512 << 20),
        (["replay.max_bytes=2gb"], 2688 << 20),
        (["replay.max_bytes=2gb", "redis.replay_address=h:1"], 512 << 20),
        (["redis.maxmemory=100mb"], 100 << 20),
    ],
)
def test_own_server_has_room_for_the_replay(overrides: list[str], memory: int) -> None:
    assert load_config("cartpole-dqn", overrides).own_redis_bytes == memory


@pytest.mark.parametrize(
    "overrides",
    [
        ["agent.round_timeout_s=9", "agent.round_steps=5", "broadcast.interval_updates=1", "learner.batch_size=16"],
        ["sender.on_full=drop", "sender.wait_timeout_s=9", "rlx.on_full=wait"],
        ["rlx.servers=1", "rlx.clients=1", "rlx.client_envs=4"],
        ["redis.maxmemory=300mb", "redis.parameter_address=h:1"],
    ],
)
def test_what_acts_is_not_refused(overrides: list[str]) -> None:
    assert load_config("cartpole-dqn", ["env.num_envs=8", "agent.count=2", *overrides])


@pytest.mark.parametrize("preset", preset_names())
def test_preset_runs_on_a_foreign_server(preset: str) -> None:
    assert load_config(preset, ["redis.address=h:1"])


def test_derived_values_follow_their_sources() -> None:
    config = load_config("cartpole-dqn", ["learner.n_step=3", "env.num_envs=8", "sender.chunk_steps=64"])
    assert config.lookahead == 2
    assert config.largest_chunk_steps == 63 + 8 * 3
    assert load_config("cartpole-dqn", ["sender.lookahead=9"]).lookahead == 9


@pytest.mark.parametrize(
    ("exploration", "settings"),
    [
        ("0.1", {"type": "constant", "value": 0.1}),
        ("0", {"type": "constant", "value": 0.0}),
        ("null", None),
        ("{type: linear, steps: 5}", {"type": "linear", "start": 1.0, "end": 0.05, "steps": 5, "begin": 0}),
        ("{type: ape_x}", {"type": "ape_x", "base": 0.4, "alpha": 7.0}),
        (
            "[[0, 1], [10, 0.1]]",
            {"type": "piecewise", "points": [[0, 1.0], [10, 0.1]]},
        ),
        (
            "{type: piecewise, points: [[0, 1], [10, 0.1]]}",
            {"type": "piecewise", "points": [[0, 1.0], [10, 0.1]]},
        ),
    ],
)
def test_exploration_becomes_plain_data(exploration: str, settings: object) -> None:
    config = load_config("cartpole-dqn", [f"agent.exploration={exploration}"])
    assert config.agent.exploration_settings() == settings


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("10b", 10), ("2k", 2000), ("2kb", 2048), ("1.5 MB", 1572864), ("3g", 3 * 10**9), ("1GB", 2**30)],
)
def test_sizes_are_read_as_redis_reads_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "mb", "1xb", "-1mb", "1e3"])
def test_text_that_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a size is"):
        parse_size(text)


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1:6060",
            "localhost:6379",
            "[::1]:6379",
            "redis://:pw@h:1/2",
            "rediss://h",
            "unix:///tmp/redis.sock",
        ),
        *("redis+cluster://a:7000,b:7001", "rediss+cluster://:pw@a:7000,b:7001?ssl_ca_certs=/ca.pem"),
        *("redis+sentinel://a:26379,b/replay", "rediss+sentinel://:pw@a/replay/1"),
    ],
)
def test_every_form_of_address_is_accepted(address: str) -> None:
    assert load_config("cartpole-dqn", [f"redis.address={address!r}"]).redis.address == address


@pytest.mark.parametrize("level", ["info", "INFO", "Warning"])
def test_log_levels_are_read_in_any_case(level: str) -> None:
    assert load_config("cartpole-dqn", [f"log_level={level}"]).log_level == level.lower()


@pytest.mark.parametrize("level", ["loud", "3", "[info]"])
def test_other_log_levels_are_refused(level: str) -> None:
    with pytest.raises(ConfigError, match=r"log_level is .*; it must be 'debug', .* 'error' or 'critical'"):
        load_config("cartpole-dqn", [f"log_level={level}"])


@pytest.mark.parametrize(
    "address", ["host", "host:", "host:0", "http://host:1", "unix://", "redis+cluster://", "a b:1", ":6379"]
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="an address is host:port"):
        load_config("cartpole-dqn", [f"redis.address={address!r}"])


def test_nothing_can_be_changed() -> None:
    config = load_config("cartpole-dqn")
    with pytest.raises(ValidationError):
        config.learner.batch_size = 3  # type: ignore[misc]


def test_every_setting_is_documented() -> None:
    sections = [Section]
    for section in sections:
        sections += section.__subclasses__()
    missing = [
        f"{section.__name__}.{name}"
        for section in sections
        for name, field in section.model_fields.items()
        if not field.description and name != "type" and not (section is Config and name in SECTIONS)
    ]
    assert not missing


def test_keys_of_all_settings_are_known() -> None:
    keys = set(all_keys(Config))
    assert {"version", "env.id", "learner.class", "learner.args", "run.max_env_steps", "redis.maxmemory"} <= keys
    assert "class_path" not in " ".join(keys)


@pytest.mark.parametrize("key", ["stores=[run, {url}]", "restore={url}"])
def test_passwords_in_places_of_checkpoints_are_refused(key: str) -> None:
    """Every copy of the configuration would show them."""
    with pytest.raises(ConfigError, match="holds no password"):
        load_config("cartpole-dqn", [f"checkpoint.{key.format(url='sftp://me:secret@host/runs')}"])
    found = load_config("cartpole-dqn", [f"checkpoint.{key.format(url='sftp://me@host/runs')}"]).checkpoint
    assert "sftp://me@host/runs" in (*found.stores, found.restore)


def test_a_run_in_lockstep_keeps_its_checkpoints_at_hand() -> None:
    overrides = ["run.deterministic=true", "checkpoint.stores=[s3://bucket/runs]"]
    with pytest.raises(ConfigError, match=r"checkpoint.stores has no 'run'"):
        load_config("cartpole-dqn", overrides)
    load_config("cartpole-dqn", [overrides[0], "checkpoint.stores=[run, s3://bucket/runs]"])


def test_confirmation_wants_a_goal_but_a_goal_may_be_taken_away() -> None:
    with pytest.raises(ConfigError, match="nothing is to be confirmed") as caught:
        load_config("atari-ppo", ["eval.confirm_episodes=7"])
    assert caught.value.key == "eval.confirm_episodes"
    assert load_config("pendulum-sac", ["run.stop_at_return=null"]).eval.confirm_episodes == 1000


def test_processes_agree_on_interventions_only_where_there_are_some() -> None:
    plain = load_config("cartpole-ppo")
    assert "interventions" not in plain.shared()["env"]
    wrapper = "env.wrappers=[{name: intervention, args: {expert: 'teacher:Expert'}}]"
    for override in ("env.interventions=true", wrapper):
        config = load_config("cartpole-ppo", [override])
        assert config.env.has_interventions
        assert config.shared()["env"]["interventions"] is True
