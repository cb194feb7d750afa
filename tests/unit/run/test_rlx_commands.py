"""What the RLX commands find out before they connect or listen, in one clear sentence."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import surreal
from surreal.base.checkpoint import save_checkpoint
from surreal.base.errors import ConfigError
from surreal.config import load_config
from surreal.envs.window import Window
from surreal.plugins.export.exporter import export_policy
from surreal.rlx.client.agent_proxy import AgentProxy
from surreal.rlx.client.gym_driver import DriverCounts
from surreal.run.process.registry import plain_config
from surreal.run.roles import rlx_client
from surreal.run.roles.rlx_server import serve_policy
from tests.policies import write_policy


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--server", "foo://x"],
            "'--server': 'foo://x' is not an address; write host:port, or a URL: rlx",
        ),
        (
            ["--server", "127.0.0.1:99999"],
            "'--server': '127.0.0.1:99999' is not an address: Port out of range",
        ),
        (["--timeout", "0"], "Invalid value for '--timeout': 0 is not > 0"),
        (["--timeout", "nan"], "Invalid value for '--timeout': nan is not > 0"),
    ],
    ids=range(4),
)
def test_wrong_arguments_of_a_client(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        rlx_client.main(["CartPole-v1", "--server", "127.0.0.1:9", *arguments])
    assert message in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("rlx.port=70000", r"^rlx\.port is 70000; it must be <= 65535 \(--set\)$"),
        ("rlx.timeout_s=-1.0", r"^rlx\.timeout_s is -1\.0; it must be > 0\.0 \(--set\)$"),
        ("rlx.bogus=1", r"^rlx\.bogus is not a setting \(--set\); rlx has servers, "),
    ],
)
def test_wrong_settings_of_a_served_policy(tmp_path: Path, override: str, message: str) -> None:
    path = tmp_path / "best.safetensors"
    content = {"kind": "policy", "version": 1, "config": plain_config(load_config("cartpole-rlx"))}
    save_checkpoint(path, {}, content, step=1)
    with pytest.raises(ConfigError, match=message):
        serve_policy(path, [override], threading.Event())


def test_an_exported_policy_is_served(tmp_path: Path, free_port: int) -> None:
    # Actions begin at 1: the file gives the environment's, and the server's pool counts from 0 as agents do.
    spaces = [
        "env.observation_space={type: box, shape: [4]}",
        "env.action_space={type: discrete, n: 2, start: 1}",
        "agent.count=0",
        "eval.enabled=false",
        "run.stop_at_return=null",
        "rlx.servers=1",
    ]
    source = write_policy(tmp_path / "best.safetensors", "cartpole-dqn", *spaces)
    exported, policy = export_policy(source), surreal.load(source)
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve_policy, exported.path, [f"rlx.port={free_port}"], stop)
        try:
            with AgentProxy(f"localhost:{free_port}") as agent:
                agent.connect()
                agent.init(True)
                states = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
                actions = [agent.update(0.0 if index else None, state) for index, state in enumerate(states)]
        finally:
            stop.set()
        served.result()
    assert actions == policy.act(states)
    assert set(actions) == {1, 2}


def test_clients_may_name_other_policies(tmp_path: Path, free_port: int) -> None:
    alone = ["agent.count=0", "eval.enabled=false", "run.stop_at_return=null", "rlx.servers=1"]
    source = write_policy(tmp_path / "best.safetensors", "cartpole-dqn", *alone)
    more = write_policy(tmp_path / "more.safetensors", "cartpole-ppo")
    stop, settings = threading.Event(), [f"rlx.port={free_port}", f"rlx.policies={{more: {more}}}"]
    states = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(serve_policy, source, settings, stop)
        try:
            with AgentProxy(f"localhost:{free_port}") as agent:
                agent.connect()
                agent.init(True, policy="more", want=["probabilities"])
                actions = []
                for index, state in enumerate(states):
                    actions.append(agent.update(0.0 if index else None, state))
                    assert np.argmax(agent.outputs["probabilities"]) == actions[-1]
        finally:
            stop.set()
        served.result()
    assert actions == surreal.load(more).act(states)


@pytest.mark.parametrize(
    ("preset", "message"),
    [(None, "rlx.policies.more: "), ("pendulum-sac", "rlx.policies.more: model: SoftActorCritic cannot be made")],
)
def test_wrong_policies_are_refused_before_the_server_listens(tmp_path: Path, preset: str | None, message: str) -> None:
    source = write_policy(tmp_path / "best.safetensors", "cartpole-dqn", "agent.count=0", "rlx.servers=1")
    more = tmp_path / "more.safetensors"
    if preset is not None:
        write_policy(more, preset)
    with pytest.raises(ConfigError, match=message):
        serve_policy(source, [f"rlx.policies={{more: {more}}}", "rlx.port=0"], threading.Event())


def test_a_signal_shows_the_first_environment_of_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    frames: list[bool] = []

    def play(makers: list[Any], *_: Any, **__: Any) -> DriverCounts:
        first, second = (make() for make in makers)
        assert (first.render_mode, second.render_mode) == ("rgb_array", None)
        first.reset()
        for is_shown in (True, False):
            signal.raise_signal(signal.SIGUSR1)
            frames.clear()
            first.step(0)
            assert frames == [True] * is_shown
        return DriverCounts()

    monkeypatch.setattr(rlx_client, "run_envs", play)
    monkeypatch.setattr(rlx_client, "stop_at_signals", threading.Event)
    monkeypatch.setattr(Window, "show", lambda self, frame: frames.append(True) or True)
    before = signal.getsignal(signal.SIGUSR1)
    assert rlx_client.main(["CartPole-v1", "--server", "127.0.0.1:9", "--envs", "2"]) == 0
    assert signal.getsignal(signal.SIGUSR1) is before
