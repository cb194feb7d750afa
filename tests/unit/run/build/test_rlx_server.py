"""From the sections `rlx` and `env` to the objects of a server, and to the processes of a launcher."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from surreal.base.errors import ConfigError
from surreal.config import Config, load_config
from surreal.config.schema.fields import Space
from surreal.rlx.client.options import TOKEN_VARIABLE
from surreal.rlx.pool.ranges import ValueLimits
from surreal.rlx.protocol.errors import RlxValueError
from surreal.run.build.check import check_names
from surreal.run.build.environments import build_spaces, make_space, remote_wrappers, value_limits
from surreal.run.build.rlx_server import (
    ServerOptions,
    build_rlx_pool,
    build_server_settings,
    client_spaces,
    demo_folder,
)
from surreal.run.launch.rlx_children import rlx_arguments
from surreal.run.process.roles import RLX_CLIENT, RLX_SERVER

BOX = "env.observation_space={type: box, shape: [2]}"
ACTIONS = "env.action_space={type: discrete, n: 3}"


FILE = Path("app.yaml")


def load(*overrides: str) -> Config:
    return load_config("cartpole-rlx", list(overrides))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{type: box, shape: [2, 3]}", spaces.Box(-np.inf, np.inf, (2, 3), np.float32)),
        ("{type: box, shape: [4], dtype: uint8}", spaces.Box(0, 255, (4,), np.uint8)),
        ("{type: box, shape: [4], dtype: uint8, high: 1}", spaces.Box(0, 1, (4,), np.uint8)),
        ("{type: box, shape: [], low: -1, high: 1}", spaces.Box(-1, 1, (), np.float32)),
        ("{type: box, shape: [2], dtype: bool}", spaces.Box(0, 1, (2,), np.bool_)),
        ("{type: discrete, n: 3, start: 2}", spaces.Discrete(3, start=2)),
        ("{type: multi_discrete, nvec: [2, 3]}", spaces.MultiDiscrete([2, 3])),
        ("{type: multi_binary, n: 4}", spaces.MultiBinary(4)),
        ("{type: dict, spaces: {a: {type: discrete, n: 2}}}", spaces.Dict({"a": spaces.Discrete(2)})),
        ("{type: tuple, spaces: [{type: discrete, n: 2}]}", spaces.Tuple([spaces.Discrete(2)])),
    ],
)
def test_space_that_is_written_down(text: str, expected: gymnasium.Space[object]) -> None:
    section = load(f"env.observation_space={text}", ACTIONS).env.observation_space
    assert section is not None
    assert section != "raw"
    space: Space = section
    assert make_space(space) == expected


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([BOX], "given together"),
        (["env.observation_space={type: box, shape: [2], low: 2, high: 1}", ACTIONS], "must be <= high"),
        (["rlx.servers=0"], "no server would answer them"),
        (["rlx.tls_key=key.pem"], "tls_cert is not"),
        (["rlx.max_message=2gb"], "nine digits"),
        (["rlx.port=70000"], "rlx.port is 70000"),
    ],
)
def test_settings_that_make_no_sense(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(*overrides)


def test_spaces_come_from_the_environment_or_from_the_file() -> None:
    of_env, given = client_spaces(load()), client_spaces(load(BOX, ACTIONS))
    assert isinstance(of_env.observation, spaces.Box)
    assert of_env.observation.shape == (4,)
    assert given.action == spaces.Discrete(3)
    assert build_spaces(load(BOX, ACTIONS)).action_space == spaces.Discrete(3)
    raw = load("env.observation_space=raw", ACTIONS)
    assert client_spaces(raw).observation is None
    assert build_spaces(raw).obs_spec is None
    assert build_rlx_pool(raw, ServerOptions()).reader is None


def test_frames_are_stacked_for_the_agent_and_single_for_clients() -> None:
    config = load("env.frame_stack=3", BOX, ACTIONS)
    pool = build_rlx_pool(config, ServerOptions())
    assert pool.reader is not None
    assert pool.reader.spec.leaves[0].shape == (2,)
    assert pool.obs_spec == build_spaces(config).obs_spec
    assert pool.obs_spec.leaves[0].shape == (3, 2)
    assert client_spaces(load("env.frame_stack=3")).observation.shape == (4,)  # type: ignore[union-attr]


def test_server_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    settings = build_server_settings(load("rlx.demo=true"), ServerOptions(is_exploiting=True), None)
    assert (settings.host, settings.token, settings.is_exploiting) == ("127.0.0.1", None, True)
    assert settings.static_dir == demo_folder()
    assert not settings.reuses_port
    assert build_server_settings(load("rlx.servers=2"), ServerOptions(), None).reuses_port


def test_limits_on_numbers_reach_pool_wrappers_and_settings() -> None:
    config = load(
        *("rlx.largest_state=50", "rlx.largest_reward=7", "rlx.outside_bounds=refuse", "rlx.max_connection_sessions=3"),
        *(BOX, ACTIONS, "eval.enabled=false", "run.stop_at_return=null", "rlx.clients=0"),
        "rlx.client_envs=1",
    )
    settings = build_server_settings(config, ServerOptions(), None)
    assert (settings.rewards.largest, settings.max_connection_sessions) == (7, 3)
    assert value_limits(config) == ValueLimits(50, 7, keeps_bounds=True)
    reader = build_rlx_pool(config, ServerOptions()).reader
    assert reader is not None
    with pytest.raises(RlxValueError, match="from -50 to 50"):
        reader.read([51.0, 0.0])
    scaled = config.model_copy(update={"env": load(BOX, ACTIONS, "env.wrappers=[{name: reward_clip}]").env})
    wrappers = remote_wrappers(scaled, client_spaces(scaled))
    assert wrappers is not None
    assert wrappers.limits == value_limits(config)


def test_token_comes_from_a_file_or_the_variable_and_is_never_missing_by_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "from-variable")
    assert build_server_settings(load(), ServerOptions(), None).token == "from-variable"
    file = tmp_path / "token"
    setting = f"rlx.token_file={file}"
    with pytest.raises(ConfigError, match="cannot be read"):
        build_server_settings(load(setting), ServerOptions(), None)
    file.write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        build_server_settings(load(setting), ServerOptions(), None)
    file.write_text("from-file\n")
    assert build_server_settings(load(setting), ServerOptions(), None).token == "from-file"


def test_launched_clients_find_the_token_where_the_servers_do(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with ExitStack() as stack:
        arguments = rlx_arguments(
            load(f"rlx.token_file={file}"), [], stack, lambda _: None, owner="r", config_path=FILE
        )
        client = arguments[RLX_CLIENT](3)
    assert client[client.index("--token-file") + 1] == str(file)


def test_launcher_starts_servers_on_one_port_and_clients_that_know_it() -> None:
    lines: list[str] = []
    with ExitStack() as stack:
        config = load("rlx.servers=2", "env.kwargs={sutton_barto_reward: true}", "rlx.demo=true")
        arguments = rlx_arguments(config, ["--run", "r"], stack, lines.append, owner="r", config_path=FILE)
    servers, client = [arguments[RLX_SERVER](number) for number in range(2)], arguments[RLX_CLIENT](0)
    port = servers[0][servers[0].index("--port") + 1]
    assert all("--reuse-port" in server and port in server for server in servers)
    assert servers[0][servers[0].index("--index") + 1] != servers[1][servers[1].index("--index") + 1]
    assert f"rlx://127.0.0.1:{port}" in client
    assert "sutton_barto_reward=true" in client
    assert lines == [
        f"environments connect to rlx://127.0.0.1:{port}", f"example page at http://127.0.0.1:{port}/example/",
    ]  # fmt: skip


def test_port_that_is_taken_is_one_clear_error() -> None:
    with socket.socket() as other, ExitStack() as stack:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ConfigError, match="cannot be had"):
            rlx_arguments(
                load(f"rlx.port={other.getsockname()[1]}"), [], stack, lambda _: None, owner="r", config_path=FILE
            )


def test_port_of_another_run_is_one_clear_error() -> None:
    with ExitStack() as stack:
        server = rlx_arguments(load(), [], stack, lambda _: None, owner="run a", config_path=FILE)[RLX_SERVER](0)
        port = server[server.index("--port") + 1]
        with pytest.raises(ConfigError, match=rf"rlx.port {port} .*belongs to run a, and run b needs"):
            rlx_arguments(load(f"rlx.port={port}"), [], stack, lambda _: None, owner="run b", config_path=FILE)


def test_clients_find_environments_where_the_configuration_says(tmp_path: Path) -> None:
    (tmp_path / "an_env_of_mine.py").write_text("raise RuntimeError('it was found')")
    with ExitStack() as stack:
        config = load("env.id=an_env_of_mine:Mine-v0", f"python_path=[{tmp_path}]")
        arguments = rlx_arguments(config, [], stack, lambda _: None, owner="r", config_path=FILE)[RLX_CLIENT](0)
    command = [sys.executable, "-m", RLX_CLIENT.module, *arguments]
    done = subprocess.run([*command, "--attempts", "1"], capture_output=True, text=True, timeout=60, check=False)
    assert "it was found" in done.stderr


LIMITED = ["env.wrappers=[{name: time_limit, args: {max_episode_steps: 9}, on_client: true}, {name: reward_clip}]"]


def test_wrappers_of_clients_are_applied_by_them_and_the_others_by_the_server() -> None:
    config = load(*LIMITED)
    check_names(config)
    with ExitStack() as stack:
        client = rlx_arguments(config, [], stack, lambda _: None, owner="r", config_path=FILE)[RLX_CLIENT](0)
    assert json.loads(client[client.index("--wrapper") + 1]) == {
        "name": "time_limit", "args": {"max_episode_steps": 9}, "training_only": None,
    }  # fmt: skip
    pool = build_rlx_pool(config, ServerOptions())
    assert pool.wrappers is not None
    assert pool.wrappers.open(training=True).rewards(5.0) == (5.0, 1.0)
    assert (
        build_rlx_pool(
            load("env.wrappers=[{name: time_limit, args: {max_episode_steps: 9}, on_client: true}]"), ServerOptions()
        ).wrappers
        is None
    )


def test_spaces_that_are_written_down_are_those_below_the_wrappers() -> None:
    config = load("env.observation_space={type: box, shape: [2, 3]}", ACTIONS, "env.wrappers=[{name: flatten}]")
    pool = build_rlx_pool(config, ServerOptions())
    assert pool.obs_spec == build_spaces(config).obs_spec
    assert pool.obs_spec.leaves[0].shape == (6,)
    assert pool.reader is not None
    assert pool.reader.spec.leaves[0].shape == (2, 3)


def test_wrapper_that_acts_in_the_environment_is_refused_before_anything_starts() -> None:
    config = load("env.wrappers=[{name: flatten}, {name: life_loss}]")
    with pytest.raises(
        ConfigError, match=r"^env\.wrappers\.1: wrapper life_loss .*on_client: true.* \(--set\)$"
    ) as error:
        check_names(config)
    assert error.value.key == "env.wrappers.1"
    with pytest.raises(ConfigError, match="life_loss"):
        build_rlx_pool(config, ServerOptions())
    assert build_rlx_pool(config, ServerOptions(is_exploiting=True)).wrappers is not None


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["env.wrappers=[{name: flatten}, {name: atari, on_client: true}]"], "innermost"),
        (["env.wrappers=[{name: flatten}]", "env.observation_space=raw", ACTIONS], "without wrappers"),
        (["env.frame_stack=2", "env.observation_space=raw", ACTIONS], "cannot be stacked"),
    ],
)
def test_wrappers_that_make_no_sense(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(*overrides)
