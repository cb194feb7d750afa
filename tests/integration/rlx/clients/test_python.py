"""The Python client and the driver of gymnasium environments, against a real server and against rude peers."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from surreal.rlx import AgentProxy, AgentProxyConnectionError, AgentProxyException, AgentProxyReplyError
from surreal.rlx.client.gym_driver import DriverOptions, run_envs
from surreal.rlx.protocol.codec import encode
from surreal.rlx.protocol.framing import frame

CART = gymnasium.make("CartPole-v1").observation_space
SCHEMES = pytest.mark.parametrize("scheme", ["rlx", "ws"])


@SCHEMES
def test_an_episode_from_beginning_to_end(serve: Any, scheme: str) -> None:
    served = serve(observation_space=CART)
    with AgentProxy(f"{scheme}://{served.address}") as agent:
        agent.connect()
        assert agent.init() == "ready"
        assert agent.update(state=[0.0, 0.0, 0.1, 0.0]) == 1
        assert agent.update(1.0, np.array([0, 0, -0.1, 0], np.float32)) == 0
        assert agent.update(0.5, [0, 0, 0, 0], terminal=True) is None
        agent.metrics.scalar("speed", 2.5, x=3)
        agent.metrics.histogram("sizes", np.arange(4))
        assert agent.update(state=[0.0, 0.0, 0.1, 0.0]) == 1
        assert agent.reset() == "done"
    served.wait(lambda: served.ended("closed"))
    first = served.episodes[0]
    assert first.rewards == [1.0, 0.5]
    assert first.end == "terminated"
    np.testing.assert_allclose([state[2] for state in first.states], [0.1, -0.1, 0.0], rtol=1e-6)
    assert served.metrics[0] == ("scalar", "client/speed", 2.5, 3)
    np.testing.assert_array_equal(served.metrics[1][2], [0, 1, 2, 3])


@SCHEMES
@pytest.mark.parametrize("size", [100, 200, 70_000, 3_000_000])
def test_states_of_all_sizes_arrive_whole(serve: Any, scheme: str, size: int) -> None:
    served = serve(observation_space=spaces.Box(0, 255, (size,), np.uint8))
    state = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    with AgentProxy(f"{scheme}://{served.address}") as agent:
        agent.connect()
        agent.init()
        agent.update(state=state)
    np.testing.assert_array_equal(served.episodes[0].states[0], state)


@pytest.mark.parametrize(
    ("space", "actions"),
    [
        (spaces.Discrete(3, start=5), [2]),
        (spaces.Box(-1, 1, (2,), np.float32), [[0.5, -0.5]]),
        (spaces.MultiDiscrete([3, 4]), [[2, 3]]),
        (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.MultiBinary(2)}), [[1, 0, 1]]),
    ],
    ids=str,
)
def test_actions_of_all_kinds_fit_the_environment(serve: Any, space: spaces.Space[Any], actions: Any) -> None:
    served = serve(space, spaces.Box(0, 1, (1,)), lambda _, count: np.repeat(np.asarray(actions), count, axis=0))
    taken = []

    class Env(gymnasium.Env[Any, Any]):
        observation_space = spaces.Box(0, 1, (1,))
        action_space = space

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return np.zeros(1, np.float32), {}

        def step(self, action: Any) -> Any:
            taken.append(action)
            return np.zeros(1, np.float32), 0.0, True, False, {}

    counts = run_envs([Env], DriverOptions(served.address, episodes=1))
    assert not counts.failures
    assert space.contains(taken[0])


@SCHEMES
def test_exploiting_sessions_are_marked(serve: Any, scheme: str) -> None:
    served = serve(observation_space=CART)
    with AgentProxy(f"{scheme}://{served.address}") as agent:
        agent.connect()
        agent.init(exploit=True)
        agent.update(state=[0.0] * 4)
    assert served.episodes[0].is_exploiting


@SCHEMES
def test_errors_come_back_as_replies(serve: Any, scheme: str) -> None:
    served = serve(observation_space=CART)
    with AgentProxy(f"{scheme}://{served.address}") as agent:
        agent.connect()
        with pytest.raises(AgentProxyReplyError, match="init"):
            agent.update(state=[0.0] * 4)
        agent.init()
        with pytest.raises(AgentProxyReplyError, match=r"\(4,\)"):
            agent.update(state=[0.0] * 5)
        assert agent.update(state=[0.0] * 4) == 0


def test_a_token_opens_the_door(serve: Any) -> None:
    served = serve(observation_space=CART, token="s3cret")
    for token in (None, "wrong"):
        agent = AgentProxy(served.address, token=token)
        agent.connect()
        with pytest.raises(AgentProxyReplyError, match="token"):
            agent.init()
        agent.disconnect()
    with AgentProxy(served.address, token="s3cret") as agent:
        agent.connect()
        agent.init()
        assert agent.update(state=[0.0] * 4) == 0


@pytest.mark.parametrize("scheme", ["rlxs", "wss"])
def test_tls_with_a_certificate_of_our_own(serve: Any, certificate: tuple[Path, Path], scheme: str) -> None:
    from surreal.rlx.server.settings import load_tls

    served = serve(observation_space=CART, tls=load_tls(*certificate))
    url = f"{scheme}://localhost:{served.server.port}"
    with AgentProxy(url, tls_ca=str(certificate[0])) as agent:
        agent.connect()
        agent.init()
        assert agent.update(state=[0.0] * 4) == 0
    with pytest.raises(AgentProxyException, match="certificate") as caught:
        AgentProxy(url).connect()
    assert not isinstance(caught.value, AgentProxyConnectionError)


def test_a_server_that_asks_for_certificates_of_clients(
    serve: Any, require_tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from surreal.plugins.clusters.redis.certificates import make_certificates
    from surreal.rlx.server.settings import load_tls

    require_tool("openssl")
    files = make_certificates(tmp_path, [])
    served = serve(observation_space=CART, tls=load_tls(files.server, files.server_key, files.authority))
    url = f"rlxs://localhost:{served.server.port}"
    with AgentProxy(url, tls_ca=str(files.authority)) as agent, pytest.raises(AgentProxyConnectionError):
        agent.connect(retry=1)
        agent.init()
    monkeypatch.setenv("SURREAL_RLX_TLS_CA", str(files.authority))
    monkeypatch.setenv("SURREAL_RLX_TLS_CERT", str(files.client))
    monkeypatch.setenv("SURREAL_RLX_TLS_KEY", str(files.client_key))
    with AgentProxy(url) as agent:
        agent.connect()
        agent.init()
        assert agent.update(state=[0.0] * 4) == 0
    with pytest.raises(AgentProxyException, match="cannot be used"):
        AgentProxy(url, tls_cert=str(tmp_path / "missing"))


def test_the_example_in_the_documents_runs(serve: Any, tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "rlx.md").read_text()
    program = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "class Bandit" in block)
    (tmp_path / "bandit.py").write_text(program)
    served = serve(spaces.Discrete(3), None, lambda _, count: np.full(count, 2))
    done = subprocess.run(
        [sys.executable, "bandit.py", "--rlx-server", served.address, "--max-episodes", "5"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    served.wait(lambda: len(served.ended()) == 5)
    assert [episode.rewards for episode in served.ended()] == [[1.0]] * 5
    assert [name for _, name, _, _ in served.metrics] == ["client/episode_reward", "client/game_score"] * 5


# -- the driver --------------------------------------------------------------------------------------------------------


def test_a_time_limit_reaches_the_agent_as_truncation_and_the_pole_s_fall_as_the_end(serve: Any) -> None:
    served = serve(observation_space=CART)
    makers = [
        lambda: gymnasium.make("CartPole-v1", max_episode_steps=5),
        lambda: gymnasium.make("CartPole-v1", max_episode_steps=5),
    ]
    counts = run_envs(makers, DriverOptions(served.address, episodes=6, seed=3))
    assert not counts.failures
    served.wait(lambda: len(served.ended()) == 6)
    assert {episode.end for episode in served.ended()} == {"truncated"}
    assert all(episode.rewards == [1.0] * 5 and len(episode.states) == 6 for episode in served.ended())
    falling = serve(observation_space=CART, policy=lambda _, count: np.zeros(count, np.int64))
    run_envs([lambda: gymnasium.make("CartPole-v1")], DriverOptions(falling.address, episodes=2, seed=3))
    falling.wait(lambda: len(falling.ended()) == 2)
    assert {episode.end for episode in falling.ended()} == {"terminated"}


def test_the_agent_sees_what_a_local_run_of_the_same_seed_and_policy_sees(serve: Any) -> None:
    served = serve(observation_space=CART)
    run_envs([lambda: gymnasium.make("CartPole-v1", max_episode_steps=40)], DriverOptions(served.address, 1, seed=11))
    served.wait(served.ended)
    env = gymnasium.make("CartPole-v1", max_episode_steps=40)
    obs, _ = env.reset(seed=int(np.random.SeedSequence(11).spawn(1)[0].generate_state(1)[0]))
    local, is_over = [obs], False
    while not is_over:
        obs, _, terminated, truncated, _ = env.step(int(obs[2] + 0.5 * obs[3] > 0))
        local.append(obs)
        is_over = terminated or truncated
    np.testing.assert_array_equal(served.ended()[0].states, local)


def test_a_server_that_is_restarted_gets_the_cut_episode_again(serve: Any) -> None:
    served = serve(observation_space=CART)
    stop = threading.Event()
    ends: list[Any] = []
    driver = threading.Thread(
        target=lambda: ends.append(
            run_envs(
                [lambda: gymnasium.make("CartPole-v1", max_episode_steps=50)] * 3,
                DriverOptions(served.address),
                stop=stop,
            )
        )
    )
    driver.start()
    try:
        for _ in range(2):
            before = len(served.ended())
            served.wait(lambda before=before: len(served.ended()) >= before + 4)
            served.restart()
        before = len(served.ended())
        served.wait(lambda: len(served.ended()) >= before + 4, timeout_s=60)
    finally:
        stop.set()
        driver.join(60)
    assert not driver.is_alive()
    assert ends[0].failures == []
    for episode in served.ended("terminated", "truncated"):
        assert len(episode.states) == len(episode.rewards) + 1
        assert len(episode.rewards) <= 50


def test_a_server_that_drops_connections_at_the_end_of_episodes_loses_none(serve: Any) -> None:
    served = serve(observation_space=CART, timeout_s=0.0)
    counts = run_envs(
        [lambda: gymnasium.make("CartPole-v1", max_episode_steps=5)] * 2, DriverOptions(served.address, episodes=6)
    )
    assert not counts.failures
    served.wait(lambda: len(served.ended()) == 6)
    assert len(served.ended()) == 6
    assert [name for _, name, _, _ in served.metrics].count("client/game_score") == 6


def test_the_command_plays_and_sums_up(serve: Any) -> None:
    served = serve(observation_space=CART)
    command = [sys.executable, "scripts/run_rlx_client.py", "CartPole-v1", "--server", served.address]
    line = [*command, "--envs", "2", "--episodes", "3", "--arg", "max_episode_steps=7", "--exploit"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "3 episodes, 21 steps" in done.stdout
    assert all(episode.is_exploiting for episode in served.ended())
    wrong = subprocess.run([*command[:2], "CartPole-v9", *command[3:]], capture_output=True, text=True, timeout=60)
    assert wrong.returncode == 1
    assert wrong.stderr.startswith("error: environment 'CartPole-v9' does not exist")


def test_the_command_reads_the_token_from_a_file(serve: Any, tmp_path: Path) -> None:
    served = serve(observation_space=CART, token="s3cret")
    command = [sys.executable, "scripts/run_rlx_client.py", "CartPole-v1", "--server", served.address]
    line = [*command, "--episodes", "1", "--token-file", str(tmp_path / "token")]
    missing = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert missing.returncode == 1
    assert missing.stderr.startswith("error: --token-file: ")
    (tmp_path / "token").write_text("s3cret\n")
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "1 episodes" in done.stdout) == (0, True), done.stderr


def test_no_server_is_one_clear_line(free_port: int) -> None:
    line = [sys.executable, "scripts/run_rlx_client.py", "CartPole-v1", "--server", f"127.0.0.1:{free_port}"]
    done = subprocess.run([*line, "--attempts", "1"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "no connection to 127.0.0.1" in done.stderr.splitlines()[-1]


# -- rude peers --------------------------------------------------------------------------------------------------------


@pytest.fixture
def peer() -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    """Start a peer that does something with each connection it takes; gives its address."""
    listeners: list[socket.socket] = []

    def start(behave: Callable[[socket.socket], None]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def accept() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                with sock:
                    behave(sock)

        threading.Thread(target=accept, name="test/peer", daemon=True).start()
        host, port = listener.getsockname()
        return f"{host}:{port}"

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def connected(address: str, **options: Any) -> AgentProxy:
    agent = AgentProxy(address, **options)
    agent.connect(retry=1)
    return agent


def test_a_reply_in_single_bytes_is_put_together(peer: Any) -> None:
    def drip(sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.recv(1000)
        for byte in frame(encode({"response": "ready"})):
            sock.sendall(bytes([byte]))
            time.sleep(0.0005)

    with connected(peer(drip)) as agent:
        assert agent.init() == "ready"


def test_a_peer_that_drips_for_ever_does_not_prolong_the_timeout(peer: Any) -> None:
    def drip(sock: socket.socket) -> None:
        sock.recv(1000)
        sock.sendall(b"9999:")
        try:
            while True:
                sock.sendall(b"x")
                time.sleep(0.02)
        except OSError:
            pass

    agent = connected(peer(drip), timeout_s=0.3)
    with pytest.raises(AgentProxyConnectionError, match="did not answer within"):
        agent.init()
    assert not agent.is_connected


@pytest.mark.parametrize("answer", [b"999999999:x", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"3:abc,", b":::"], ids=repr)
def test_a_peer_that_speaks_something_else_is_told_apart_from_a_lost_connection(peer: Any, answer: bytes) -> None:
    agent = connected(peer(lambda sock: (sock.recv(1000), sock.sendall(answer))))
    with pytest.raises(AgentProxyException) as caught:
        agent.init()
    assert not isinstance(caught.value, AgentProxyConnectionError)
    assert not agent.is_connected


@pytest.mark.parametrize("behave", [lambda sock: None, lambda sock: sock.recv(1000)], ids=["at once", "after"])
def test_a_peer_that_closes_is_a_lost_connection(peer: Any, behave: Any) -> None:
    agent = connected(peer(behave))
    with pytest.raises(AgentProxyConnectionError):
        agent.init()


@pytest.mark.parametrize("answer", [b"5:hello,", b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 101 x\r\n\r\n"], ids=repr)
def test_a_websocket_is_opened_only_with_a_websocket_server(peer: Any, answer: bytes) -> None:
    def behave(sock: socket.socket) -> None:
        sock.recv(1000)
        sock.sendall(answer)

    with pytest.raises(AgentProxyException):
        connected(f"ws://{peer(behave)}", connect_timeout_s=1)


def test_nobody_there(free_port: int) -> None:
    with pytest.raises(AgentProxyConnectionError, match="no connection"):
        connected(f"127.0.0.1:{free_port}")
