"""TrainingBase: where its options come from, and what it does when the agent fails."""

from __future__ import annotations

import logging
import random
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from surreal.base.errors import ConfigError
from surreal.config import load_config
from surreal.config.loading import to_yaml
from surreal.rlx import AgentProxyConnectionError, AgentProxyException, AgentProxyReplyError, TrainingBase
from surreal.rlx.client.transport import parse_address

LOST = AgentProxyConnectionError("lost")


class FakeAgent:
    """Does as its script says: an exception is raised, anything else is fine; at the end of the script all is fine."""

    def __init__(self, **scripts: Sequence[Exception | None]) -> None:
        self.scripts = {name: list(script) for name, script in scripts.items()}
        self.calls: list[str] = []
        self.records: list[Any] = []
        self.exploits: list[bool] = []

    def _do(self, name: str) -> None:
        self.calls.append(name)
        script = self.scripts.get(name, [])
        step = script.pop(0) if script else None
        if step is not None:
            raise step

    def connect(self, retry: int = 6) -> None:
        self._do("connect")

    def init(self, exploit: bool = False) -> None:
        self.exploits.append(exploit)
        self._do("init")

    def update(self, *_: Any, **__: Any) -> int:
        self._do("update")
        return 0

    def update_metrics(self, records: Any) -> None:
        self._do("update_metrics")
        self.records += [(record["method"], record["name"], record["y"]) for record in records]

    def disconnect(self) -> None:
        self.calls.append("disconnect")


class Game(TrainingBase):
    numbers: list[int]

    def episode(self, number: int) -> float | None:
        self.numbers.append(number)
        self.agent.update()
        return 10.0 + number


def game(agent: FakeAgent, argv: Sequence[str] = (), **options: Any) -> Game:
    training = Game(argv, agent=agent, **options)  # type: ignore[arg-type]
    training.numbers = []
    training._rng = random.Random(0)
    return training


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("threading.Event.wait", lambda self, timeout=None: False)
    monkeypatch.chdir(tmp_path)


def test_every_episode_is_recorded_under_both_names() -> None:
    agent = FakeAgent()
    training = game(agent, max_episodes=2)
    assert training.run()
    assert training.numbers == [0, 1]
    assert agent.records == [
        ("scalar", "episode_reward", 10.0),
        ("scalar", "game_score", 10.0),
        ("scalar", "episode_reward", 11.0),
        ("scalar", "game_score", 11.0),
    ]
    assert agent.calls[:2] == ["connect", "init"]
    assert agent.calls[-1] == "disconnect"


def test_an_episode_without_a_reward_records_none() -> None:
    class Silent(Game):
        def episode(self, number: int) -> float | None:
            return None

    agent = FakeAgent()
    assert Silent((), agent=agent).run()  # type: ignore[arg-type]
    assert agent.records == []


def test_an_episode_that_was_cut_off_is_repeated() -> None:
    agent = FakeAgent(update=[None, LOST, LOST])
    training = game(agent, max_episodes=3, exploit=True)
    assert training.run()
    assert training.numbers == [0, 1, 1, 1, 2]
    assert agent.calls.count("connect") == 3
    assert agent.exploits == [True] * 3
    assert len(agent.records) == 6


def test_a_run_that_ends_takes_its_server_away_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Stopping(FakeAgent):
        def connect(self, retry: int = 1) -> None:
            if "update" in self.calls:  # the run stops its environments while they connect again
                training._stop.set()
            super().connect(retry)

    agent = Stopping(connect=[None, LOST, LOST, LOST], update=[LOST])
    training = game(agent, max_episodes=3)
    assert training.run()
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []
    caplog.clear()
    assert game(FakeAgent(update=[LOST])).run()
    assert [record.message.partition(":")[0] for record in caplog.records if record.levelno >= logging.WARNING] == [
        "episode 0 was cut off and is repeated"
    ]


def test_an_episode_is_not_repeated_for_a_connection_lost_after_it() -> None:
    agent = FakeAgent(update_metrics=[LOST])
    training = game(agent, max_episodes=2)
    assert training.run()
    assert training.numbers == [0, 1]
    assert [name for _, name, _ in agent.records] == ["episode_reward", "game_score"] * 2


def test_a_server_that_closes_at_once_is_tried_again_like_one_that_is_not_there() -> None:
    agent = FakeAgent(connect=[LOST], init=[LOST, LOST])
    assert game(agent).run()
    assert agent.calls.count("connect") == 4


def test_it_gives_up_after_as_many_attempts_as_allowed() -> None:
    agent = FakeAgent(connect=[LOST] * 100)
    training = game(agent, attempts=3)
    assert not training.run()
    assert agent.calls == ["connect"] * 3 + ["disconnect"]
    assert training.failure is LOST


def test_a_server_that_never_lets_an_episode_end_is_given_up() -> None:
    agent = FakeAgent(update=[LOST] * 1000)
    training = game(agent)
    assert not training.run()
    assert len(training.numbers) == training.max_lost_episodes


@pytest.mark.parametrize("failure", [AgentProxyReplyError("no"), AgentProxyException("nonsense")], ids=repr)
def test_any_other_failure_is_reported_and_ends_the_run(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    agent = FakeAgent(update=[failure])
    training = game(agent, max_episodes=5)
    assert not training.run()
    assert training.failure is failure
    assert training.numbers == [0]
    assert agent.calls[-1] == "disconnect"
    assert str(failure) in caplog.text


def test_an_error_of_the_environment_is_its_own() -> None:
    class Broken(Game):
        def episode(self, number: int) -> float:
            raise ZeroDivisionError

    agent = FakeAgent()
    with pytest.raises(ZeroDivisionError):
        Broken((), agent=agent).run()  # type: ignore[arg-type]
    assert agent.calls[-1] == "disconnect"


def test_options_come_from_app_yaml(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(
        "environment: {max_episodes: 7, infinite_run: true, other: 1}\nrelaax_rlx_server: {bind: 'host:5'}\nmore: []\n"
    )
    training = Game(())
    assert (training.max_episodes, training.infinite_run, training.exploit) == (7, True, False)
    assert str(training.agent.address) == "host:5"


def test_sections_may_have_hyphens_and_more_is_the_environments_own(tmp_path: Path) -> None:
    (tmp_path / "app.yaml").write_text(
        "relaax-rlx-server: {bind: 'host:5'}\nenvironment: {max-episodes: 7, infinite-run: true, steps: 30}\n"
    )
    training = Game(())
    assert (str(training.agent.address), training.max_episodes, training.infinite_run) == ("host:5", 7, True)
    assert training.options.get("environment/steps", 1) == 30
    assert training.options.get("environment/other", 1) == 1


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("relaax_rlx_server: {bind: 'host:5'}\nrlx: {port: 7002}\n", "host:5"),
        ("rlx: {host: 0.0.0.0, port: 7002}\n", "localhost:7002"),
        ("rlx: {host: '::1'}\n", "[::1]:7001"),
        ("rlx: {tls_cert: cert.pem}\n", "rlxs://localhost:7001"),
        ("", "localhost:7001"),
    ],
)
def test_one_file_serves_a_run_and_its_environments(tmp_path: Path, text: str, address: str) -> None:
    path = tmp_path / "app.yaml"
    path.write_text(f"env: {{id: CartPole-v1}}\nenvironment: {{max_episodes: 7, difficulty: hard}}\n{text}")
    training = Game(())
    assert (training.max_episodes, training.agent.address) == (7, parse_address(address))
    config = load_config(path)
    assert config.environment.max_episodes == 7
    # So does the copy of the configuration that is in the folder of a run.
    path.write_text(to_yaml(config))
    assert load_config(path).environment == config.environment
    again = Game(())
    assert (again.max_episodes, again.infinite_run, again.agent.address.port) == (7, False, parse_address(address).port)


def test_the_command_line_goes_before_the_file_and_arguments_before_both(tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("environment: {max_episodes: 7}")
    line = ["--config", str(path), "--exploit", "True", "--mine", "1", "--rlx-server", "a:1"]
    training = Game(line)
    assert (training.max_episodes, training.exploit, str(training.agent.address)) == (7, True, "a:1")
    assert Game([*line, "--max-episodes", "9"]).max_episodes == 9
    assert Game([*line, "--max-episodes", "9"], max_episodes=2, exploit=False).max_episodes == 2
    assert not Game(line, exploit=False).exploit


@pytest.mark.parametrize(
    ("line", "expected"), [([], False), (["--exploit"], True), (["--exploit", "false"], False), (["--exploit=1"], True)]
)
def test_exploit_with_and_without_a_word(line: list[str], expected: bool) -> None:
    assert Game(line).exploit is expected


def test_the_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SURREAL_RLX_TOKEN", "s3cret")
    assert Game(()).agent._token == "s3cret"


@pytest.mark.parametrize("text", ["[1]", "environment: 3", "a: [", "\x00"])
def test_a_file_that_says_something_else_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "app.yaml").write_text(text)
    with pytest.raises(ConfigError):
        Game(())


def test_a_file_that_was_named_must_be_there() -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        Game(["--config", "none.yaml"])


def test_episode_has_to_be_written() -> None:
    with pytest.raises(NotImplementedError, match="episode"):
        TrainingBase((), agent=FakeAgent()).run()  # type: ignore[arg-type]


def test_a_signal_turns_showing_on_and_off_while_it_runs() -> None:
    class Shown(Game):
        seen: list[bool]

        def episode(self, number: int) -> float | None:
            self.seen.append(self.show_ui)
            if number < 2:
                signal.raise_signal(signal.SIGUSR1)
            self.seen.append(self.show_ui)
            return None

    before = signal.getsignal(signal.SIGUSR1)
    training = Shown((), agent=FakeAgent(), max_episodes=3)  # type: ignore[arg-type]
    training.seen = []
    assert training.run()
    assert training.seen == [False, True, True, False, False, False]
    assert signal.getsignal(signal.SIGUSR1) is before
