"""`surreal watch`: the newest parameters of a run at play, from outside of it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from surreal.base.errors import RedisUnavailableError
from surreal.cli.program import main
from surreal.config import Config, load_config
from surreal.distributed import RedisClient, TorchBroadcaster
from surreal.envs.terminal import Colors, Screen
from surreal.plugins.runs.watching import Watcher
from surreal.run.build.acting import build_model
from surreal.run.build.environments import build_spaces
from surreal.run.process import registry
from surreal.run.process.progress import write_progress
from surreal.run.process.registry import Registrant
from surreal.run.view.play import EpisodeDisplay, fresh_rng
from tests.integration.test_broadcast import keys_of


class Learner:
    """Publishes parameters of a policy that always pushes to one side."""

    def __init__(self, client: RedisClient) -> None:
        self.config = load_config("cartpole-dqn", ["model.args.hidden_sizes=[8]", "eval.max_episode_steps=7"])
        self.client = client
        registry.register(client, self.config, Registrant("learner", leads=True))
        self.model = build_model(self.config, build_spaces(self.config))
        self.broadcaster = TorchBroadcaster(client, self.model)

    def publish(self, global_step: int) -> None:
        with self.model.lock, torch.no_grad():
            for tensor in self.model.parameters():
                tensor.fill_(0.01 * global_step)
        self.broadcaster.broadcast(self.model, write_progress(1, global_step))


@pytest.fixture
def client(redis_server: Any, run_id: str) -> Iterator[RedisClient]:
    with RedisClient(redis_server.address, run=run_id, retry_timeout_s=5.0) as client:
        yield client
        client.delete_run()


@pytest.fixture
def learner(client: RedisClient) -> Iterator[Learner]:
    learner = Learner(client)
    yield learner
    learner.broadcaster.close()


def no_wait(_: float) -> None:
    raise AssertionError("there was something to wait for")


def watcher_of(learner: Learner, view: EpisodeDisplay = EpisodeDisplay(), config: Config | None = None) -> Watcher:  # noqa: B008
    return Watcher(learner.client, config or learner.config, view, rng=fresh_rng(1))


def test_each_episode_is_of_the_newest_version(learner: Learner) -> None:
    learner.publish(100)
    before = keys_of(learner.client)
    seen = []
    for watched in watcher_of(learner).episodes(4, wait=no_wait):
        seen.append((watched.number, watched.version, watched.global_step, watched.score.length))
        if watched.number == 1:
            learner.publish(200)
            learner.publish(300)
    assert seen == [(0, 1, 100, 7), (1, 1, 100, 7), (2, 3, 300, 7), (3, 3, 300, 7)]
    assert keys_of(learner.client) - before <= {"contract"}, "an onlooker left something in the run"


def test_first_parameters_are_waited_for(learner: Learner) -> None:
    said: list[str] = []

    def wait(_: float) -> None:
        if len(said) == 3:
            learner.publish(1)
        said.append("waited")

    (watched,) = watcher_of(learner).episodes(1, on_wait=lambda: said.append("told"), wait=wait)
    assert watched.version == 1
    assert said == ["told", "waited", "waited", "waited"]


def test_it_ends_with_the_run_whose_last_parameters_are_seen(learner: Learner) -> None:
    learner.publish(1)
    watcher, seen = watcher_of(learner), []
    for watched in watcher.episodes(wait=no_wait):
        seen.append(watched.version)
        if len(seen) == 2:
            registry.request_stop(learner.client, "it is solved")
    assert seen == [1, 1]
    assert watcher.ending == "it is solved"
    assert [watched.version for watched in watcher_of(learner).episodes(wait=no_wait)] == [1]


def test_a_run_that_ends_before_it_learned_has_no_episodes(learner: Learner) -> None:
    registry.request_stop(learner.client, "its disk is full")
    watcher = watcher_of(learner)
    assert list(watcher.episodes(wait=no_wait)) == []
    assert watcher.ending == "its disk is full"


def test_redis_that_goes_away_ends_it_and_one_that_was_never_there_is_an_error(
    start_redis: Callable[..., Any], run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surreal.plugins.runs.watching._TIMEOUT_S", 0.3)
    server = start_redis()
    with RedisClient(server.address, run=run_id, retry_timeout_s=0.3) as client:
        learner = Learner(client)
        learner.publish(1)
        learner.broadcaster.close()
        watcher = watcher_of(learner)
        for watched in watcher.episodes(wait=no_wait):
            assert watched.number == 0
            server.kill()
        assert "the run has ended, or cannot be reached from here" in watcher.ending
        with pytest.raises(RedisUnavailableError):
            list(watcher_of(learner).episodes(wait=no_wait))


def test_parameters_may_be_on_a_server_of_their_own(learner: Learner, start_redis: Callable[..., Any]) -> None:
    server = start_redis()
    with RedisClient(server.address, run=learner.client.run) as other:
        broadcaster = TorchBroadcaster(other, learner.model)
        broadcaster.broadcast(learner.model, write_progress(1, 50))
        config = registry.stored_config(learner.client, [f"redis.parameter_address={server.address}"])
        assert [watched.global_step for watched in watcher_of(learner, config=config).episodes(1, wait=no_wait)] == [50]
        broadcaster.close()


def test_the_command_says_version_and_return_of_each_episode(
    learner: Learner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    learner.publish(1234)
    run, address = learner.client.run, learner.client.address
    arguments = ["watch", run, "--redis", address, "--episodes", "2"]
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    assert main([*arguments, "--record", str(tmp_path)]) == 0, capsys.readouterr().err
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"watching run {run}"
    assert lines[1] == "version 1, 1,234 env steps: episode 0, return 7, 7 steps"
    assert lines[-1] == f"videos in {tmp_path}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["watch-episode-0.mp4", "watch-episode-1.mp4"]
    assert main([*arguments, "--show"]) == 2
    assert "there is no display here" in capsys.readouterr().err
    assert main(arguments) == 0  # neither display nor terminal: the scores alone
    assert capsys.readouterr().out.count("episode") == 2


def test_the_terminal_shows_the_version(learner: Learner) -> None:
    learner.publish(5)
    stream = io.StringIO()
    with Screen(stream, Colors.TRUE) as screen:
        list(watcher_of(learner, EpisodeDisplay(screen=screen)).episodes(1, wait=no_wait))
    assert f"{learner.client.run}  version 1  episode 0  step 7  return 7" in stream.getvalue()
