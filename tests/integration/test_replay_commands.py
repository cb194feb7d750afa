"""`surreal replay info | export | import`, and what offline training checks before it learns."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest

from surreal.base.errors import CodecError, ConfigError, ContractError
from surreal.cli.program import main
from surreal.config import Config, load_config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.sender import ExpSender
from surreal.replay import UniformReplay
from surreal.replay.archive import ReplayArchive, export_replay, importing
from surreal.replay.archive.files import ArchiveWriter
from surreal.replay.stream.info import replay_info
from surreal.run.session.offline import fill_replay, offline_overrides, offline_settings

STEPS = 200


@pytest.fixture
def client(redis_server: Any, run_id: str) -> Iterator[RedisClient]:
    """A run whose replay looks like one of CartPole."""
    with RedisClient(redis_server.address, run=run_id) as made:
        sender = ExpSender(made, chunk_steps=50, lookahead=2)
        obs = np.zeros(4, np.float32)
        for i in range(STEPS):
            new_obs = np.full(4, i + 1, np.float32)
            sender.send([obs, new_obs], i % 2, 1.0, False)
            obs = new_obs
        assert sender.close()
        yield made
        made.delete_run()


@pytest.fixture
def archive(client: RedisClient, tmp_path: Path) -> Path:
    export_replay(client, tmp_path / "archive")
    return tmp_path / "archive"


def test_info_shows_what_is_there_and_who_owns_it(client: RedisClient, capsys: pytest.CaptureFixture[str]) -> None:
    info = replay_info(client)
    assert (info.steps, info.live_steps, info.owner, info.max_bytes) == (STEPS, STEPS, None, None)
    assert (len(info.epoch), info.chunks) == (16, client.redis.xlen(client.shard_keys().stream))
    assert info.bytes_per_transition == info.live_bytes / STEPS > 16
    assert info.oldest_age_s is not None
    assert info.newest_age_s is not None
    assert 0 <= info.newest_age_s <= info.oldest_age_s < 100
    assert info.contract is not None
    assert info.contract["lookahead"] == 2
    replay = UniformReplay(client, batch_size=4, capacity=1000, start_size=1, lease_s=60.0)
    replay.step(timeout_s=0)
    owned = replay_info(client)
    assert owned.owner is not None
    assert owned.max_bytes is not None
    assert owned.mode == "window"
    replay.join()
    address = f"unix://{client.redis.connection_pool.connection_kwargs['path']}"
    assert main(["replay", "info", client.run, "--redis", address, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["live_steps"] == STEPS
    assert main(["replay", "info", client.run, "--redis", address]) == 0
    assert f"{STEPS} there" in capsys.readouterr().out


def test_export_and_import_from_the_command_line(
    client: RedisClient, tmp_path: Path, redis_server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    address, path, target = ["--redis", redis_server.address], str(tmp_path / "here"), f"{client.run}-copy"
    assert main(["replay", "export", client.run, path, *address, "--format", "parquet"]) == 0
    assert capsys.readouterr().out.startswith(f"{STEPS} steps in ")
    assert main(["replay", "import", path, target, *address]) == 0
    assert capsys.readouterr().out.startswith(f"{STEPS} steps in ")
    assert main(["replay", "import", path, target, *address]) == 0
    assert "were there already" in capsys.readouterr().out
    with RedisClient(redis_server.address, run=target) as copy:
        assert replay_info(copy).live_steps == STEPS
        copy.delete_run()


def test_two_at_once_write_one_archive_and_each_chunk_once(
    client: RedisClient,
    tmp_path: Path,
    redis_server: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both_have_looked = threading.Barrier(2)

    def together(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            both_have_looked.wait(60.0)
            return result

        return call

    monkeypatch.setattr(ArchiveWriter, "__init__", together(ArchiveWriter.__init__))
    monkeypatch.setattr(importing._Importer, "missing", together(importing._Importer.missing))

    def twice(*arguments: str) -> tuple[list[int], str, str]:
        """Exit codes and output of two commands; neither begins to write before the other one has looked."""
        with ThreadPoolExecutor(2) as pool:
            commands = [pool.submit(main, ["replay", *arguments, "--redis", redis_server.address]) for _ in range(2)]
            codes = sorted(command.result() for command in commands)
        return codes, *capsys.readouterr()

    codes, output, errors = twice("info", client.run)
    assert (codes, output.count(f"{STEPS} there"), errors) == ([0, 0], 2, "")

    codes, output, errors = twice("export", client.run, str(tmp_path / "archive"))
    assert (codes, output.count(f"{STEPS} steps in ")) == ([0, 2], 1)
    assert re.search(r"error: .*/archive was made by another process meanwhile; name a new folder", errors)
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]
    ReplayArchive(tmp_path / "archive").verify()

    target = f"{client.run}-twice"
    codes, output, errors = twice("import", str(tmp_path / "archive"), target)
    assert (codes, errors) == ([0, 0], "")
    assert sum(int(steps) for steps in re.findall(r"(\d+) steps in", output)) == STEPS
    with RedisClient(redis_server.address, run=target) as copy:
        assert replay_info(copy).live_steps == STEPS
        copy.delete_run()


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["info", "nobody"], 2, "holds no replay of run 'nobody'"),
        (["export", "nobody", "there"], 1, "is empty"),
        (["export", "RUN", "."], 2, "exists already"),
        (["export", "RUN", "there", "--format", "csv"], 2, "use arrow or parquet"),
        (["import", "missing", "RUN"], 1, "missing is not a whole replay archive"),
        (["import", "missing", "a/b"], 2, "run id 'a/b' must be"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    arguments: list[str],
    exit_code: int,
    message: str,
    client: RedisClient,
    redis_server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    named = [client.run if argument == "RUN" else argument for argument in arguments]
    assert main(["replay", *named, "--redis", redis_server.address]) == exit_code
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error
    assert list(tmp_path.iterdir()) == []


def offline_config(overrides: list[str], archive: Path) -> Config:
    settings = offline_settings(load_config("cartpole-dqn", overrides), str(archive))
    return load_config("cartpole-dqn", [*overrides, *settings])


def test_offline_settings_hold_the_archive_and_have_an_end(archive: Path) -> None:
    config = offline_config([], archive)
    assert (config.agent.count, config.replay.samples_per_insert, config.run.max_env_steps) == (0, None, None)
    assert config.replay.start_size == STEPS
    assert config.learner.max_updates == 60_000 * 32 // 128  # as many as with agents
    large = replace(ReplayArchive(archive).manifest, steps=10**6, stored_bytes=1 << 30)
    overrides = offline_overrides(load_config("cartpole-dqn"), large)
    config = load_config("cartpole-dqn", overrides)
    assert (config.replay.capacity, config.replay.start_size) == (10**6, 1000)
    assert config.replay.max_bytes >= 1 << 30
    given = offline_config(["learner.max_updates=7"], archive)
    assert given.learner.max_updates == 7
    with pytest.raises(ConfigError, match="no end"):
        offline_config(["run.max_env_steps=null"], archive)
    assert offline_config(["redis.maxmemory=100mb"], archive).redis.maxmemory == 100 << 20


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["agent.count=3"], "agent.count"),
        (["learner.max_updates=7", "run.max_env_steps=100_000"], "run.max_env_steps"),
        (["run.max_time_s=60", "replay.samples_per_insert=8"], "replay.samples_per_insert"),
    ],
)
def test_what_offline_training_has_no_use_for_is_refused(overrides: list[str], key: str, archive: Path) -> None:
    with pytest.raises(ConfigError, match=f"{key} is .*, but --offline has no agents"):
        offline_config(overrides, archive)


def test_an_archive_of_another_environment_or_not_whole_is_refused(
    archive: Path, client: RedisClient, redis_server: Any
) -> None:
    with RedisClient(redis_server.address, run=f"{client.run}-offline") as target:
        process: Any = SimpleNamespace(replay=target, stop=threading.Event(), config=load_config("acrobot-dqn"))
        with pytest.raises(ContractError, match="another environment than Acrobot-v1"):
            fill_replay(process, str(archive))
        process.config = load_config("cartpole-dqn")
        with (archive / "steps-00000.arrow").open("r+b") as file:
            whole = file.read()
            file.truncate(500)
        with pytest.raises(CodecError, match=r"steps-00000.arrow was cut off"):
            fill_replay(process, str(archive))
        assert not target.redis.exists(target.shard_keys().stream)
        (archive / "steps-00000.arrow").write_bytes(whole)
        fill_replay(process, str(archive))
        fill_replay(process, str(archive))  # as a learner does that was started again
        assert replay_info(target).live_steps == STEPS
        target.delete_run()


def test_a_dataset_of_minari_is_learned_from_as_an_archive_is(
    redis_server: Any, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = gymnasium.make("CartPole-v1")

    def write(name: str, reward: float) -> None:
        buffers = [
            minari.data_collector.episode_buffer.EpisodeBuffer(
                observations=np.full((41, 4), number, np.float32),
                actions=np.zeros(40, np.int64),
                rewards=np.where(np.arange(40) == 7 * number, reward, 1.0),
                terminations=np.arange(40) == 39,
                truncations=np.zeros(40, np.bool_),
            )
            for number in range(5)
        ]
        spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
        minari.create_dataset_from_buffers(name, buffers, author="", author_email="", code_permalink="", **spaces)

    with pytest.warns(UserWarning):  # of Minari, on what the metadata lack
        write("made/good-v0", 1.0)
        write("made/bad-v0", np.nan)
    overrides = ["learner.n_step=3", "learner.max_updates=7"]
    settings = offline_settings(load_config("cartpole-dqn", overrides), "minari:made/good-v0")
    config = load_config("cartpole-dqn", [*overrides, *settings])
    assert (config.agent.count, config.replay.start_size) == (0, STEPS)
    with RedisClient(redis_server.address, run=run_id) as target:
        process: Any = SimpleNamespace(replay=target, stop=threading.Event(), config=load_config("acrobot-dqn"))
        with pytest.raises(ContractError, match=r"minari:made/good-v0 holds .* another environment than Acrobot-v1"):
            fill_replay(process, "minari:made/good-v0")
        process.config = config
        with pytest.raises(CodecError, match="minari:made/bad-v0, episode 0, step 0: reward is nan"):
            fill_replay(process, "minari:made/bad-v0")
        with pytest.raises(ConfigError, match="minari:made/other-v0 is not there"):
            fill_replay(process, "minari:made/other-v0")
        assert not target.redis.exists(target.shard_keys().stream)
        for source in ("minari:made/good-v0", str(tmp_path / "made" / "good-v0")):
            fill_replay(process, source)
        info = replay_info(target)
        assert (info.contract or {})["lookahead"] == 2  # for returns of 3 steps
        assert info.live_steps == 2 * STEPS
        target.delete_run()
