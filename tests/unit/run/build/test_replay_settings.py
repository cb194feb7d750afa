"""What a replay's class takes of a run's settings, what it refuses, and what its learner must take of it."""

from __future__ import annotations

import re
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from surreal.base.errors import ConfigError
from surreal.config import Config, default_values, load_config, to_yaml
from surreal.config.schema.sections import ReplayConfig
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.shards import ReplayShards
from surreal.envs import LocalEnvPool
from surreal.learner import Learner
from surreal.replay import FIFOReplay, Replay, SequenceReplay
from surreal.run.build import acting
from surreal.run.build.check import check_names
from surreal.run.build.learning import build_replay, check_replay, replay_arguments

#: A server that nobody asks.
NOWHERE = ReplayShards.of(RedisClient("unix:///nowhere"))
FIFO = "replay: {class: surreal.replay.FIFOReplay}"
SEQUENCES = ["replay.class=surreal.replay.SequenceReplay", "learner.batch_size=64", "replay.samples_per_insert=1"]
SEQUENCES += ["replay.args.sequence_length=50", "replay.args.burn_in=10", "learner.n_step=1"]


def config_of(*overrides: str) -> Config:
    return load_config("cartpole-dqn", overrides)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Config]:
    """A small file with these further lines."""

    def written(*lines: str) -> Config:
        path = tmp_path / "app.yaml"
        path.write_text("\n".join(["env: {id: CartPole-v1}", *lines, ""]))
        return load_config(path)

    return written


class Learning(Learner):
    """Takes anything."""

    def learn(self, i: int, batch: Any) -> Any:
        return {}


@pytest.fixture
def anything(monkeypatch: pytest.MonkeyPatch) -> str:
    """A learner that takes all kinds of batches, as a line of a file."""
    module = types.ModuleType("their_learners")
    module.Learning = Learning  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "their_learners", module)
    return "learner: {class: their_learners.Learning}"


def test_agents_send_the_states_that_sequences_begin_with(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: dict[str, Any] = {}
    monkeypatch.setattr(acting, "ExpSender", lambda shards, **options: sent.update(options))
    config = load_config("cartpole-r2d2", ["replay.args.start_interval=8"])
    with LocalEnvPool([lambda: gymnasium.make("CartPole-v1")]) as pool:
        acting.build_sender(config, NOWHERE, pool, threading.Event())
    assert sent["state_interval"] == 8


# -- settings that a class has no use for ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "key", "message"),
    [
        (
            [],
            "replay.samples_per_insert",
            "agents would wait for a limiter that no replay runs; leave samples_per_insert",
        ),
        (
            ["replay.samples_per_insert=null", "replay.follow=true"],
            "replay.follow",
            "it would own the stream all the same; leave follow out, or set it to false",
        ),
        (
            ["replay.samples_per_insert=null", "replay.max_age_s=10"],
            "replay.max_age_s",
            "nothing would leave for its age",
        ),
        (
            ["replay.samples_per_insert=null"],
            "replay.capacity",
            "is 50000, but FIFOReplay has no argument capacity; leave capacity out, or set it to null",
        ),
    ],
)
def test_what_a_preset_gives_and_a_class_does_not_take_is_refused(overrides: list[str], key: str, message: str) -> None:
    config = config_of("replay.class=surreal.replay.FIFOReplay", "replay.capacity=50000", *overrides)
    for check in (check_names, lambda config: build_replay(config, NOWHERE, seed=0)):
        with pytest.raises(ConfigError, match=re.escape(message)) as caught:
            check(config)
        assert caught.value.key == key
        assert re.search(r"\((--set|cartpole-dqn\.yaml line \d+)\)", str(caught.value))


@pytest.mark.parametrize(
    ("setting", "argument"),
    [
        ("replay.start_size=5", "start_size"),
        ("replay.observations=remote", "observations"),
        ("replay.mirror_max_bytes=1gb", "mirror_max_bytes"),
        ("replay.prefetch=4", "prefetch"),
        ("learner.n_step=3", "n_step"),
    ],
)
def test_nothing_that_is_given_is_dropped(
    write: Callable[..., Config], anything: str, tmp_path: Path, setting: str, argument: str
) -> None:
    write(FIFO, anything)
    config = load_config(tmp_path / "app.yaml", [setting])
    with pytest.raises(ConfigError, match=f"but FIFOReplay has no argument {argument}; leave {argument} out") as caught:
        check_names(config)
    assert caught.value.key == setting.partition("=")[0]


def test_what_is_not_given_asks_nothing_of_a_class(write: Callable[..., Config], anything: str, tmp_path: Path) -> None:
    """Nor does a start size that it does not have: a run may be as short as its defaults allow."""
    config = write(FIFO, anything, "run: {max_env_steps: 500}")
    check_names(config)
    replay = build_replay(config, NOWHERE, seed=0)
    assert isinstance(replay, FIFOReplay)
    assert (replay.batch_size, replay.gamma) == (64, 0.99)
    (tmp_path / "whole.yaml").write_text(to_yaml(config))
    check_names(load_config(tmp_path / "whole.yaml"))


def test_what_is_not_given_is_what_the_class_says(write: Callable[..., Config]) -> None:
    config, own = write(), default_values(Replay)
    replay = build_replay(config, NOWHERE, seed=0)
    assert (replay.capacity, replay.start_size) == (own["capacity"], own["start_size"])
    arguments = replay_arguments(write("replay: {start_size: 7, samples_per_insert: 2}"))
    assert arguments["start_size"] == 7
    assert arguments["observations"] == own["observations"]


def test_the_schema_tells_the_defaults_of_our_classes() -> None:
    own = default_values(Replay)
    shown = {name: str(own[name]) for name in ("capacity", "start_size", "observations")}
    shown["mirror_max_bytes"] = f"{own['mirror_max_bytes'] >> 30}gb"
    for name, value in shown.items():
        assert value in (ReplayConfig.model_fields[name].description or ""), name


# -- conflicts that concern a class ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "key", "message"),
    [
        (["replay.start_size=60_000", "run.max_env_steps=null"], "replay.start_size", "learning would never start"),
        (["learner.batch_size=60_000"], "learner.batch_size", "more than replay.capacity, 50000"),
        (["sender.chunk_steps=40_000"], "sender.chunk_steps", "is 80000 steps, more than replay.capacity"),
        (["run.max_env_steps=1000"], "run.max_env_steps", "the run would end before it learns"),
        (
            ["replay.samples_per_insert_tolerance=2047"],
            "replay.samples_per_insert_tolerance",
            "is 2047; it must be >= 2048 = samples_per_insert 16 x 2 agents x sender.chunk_steps 64",
        ),
        (
            ["replay.samples_per_insert_tolerance=143", "sender.chunk_steps=4", "replay.samples_per_insert=16"],
            "replay.samples_per_insert_tolerance",
            "it must be >= 144 = learner.batch_size 128 + samples_per_insert 16",
        ),
        (
            ["replay.samples_per_insert_tolerance=2047", "sender.chunk_steps=4", "env.num_envs=50", "learner.n_step=3"],
            "replay.samples_per_insert_tolerance",
            "it must be >= 2448 = samples_per_insert 16 x 153, the steps of an agent's largest chunk",
        ),
        (["replay.observations=remote", "sender.compression=lz4"], "sender.compression", "which fetches single rows"),
    ],
)
def test_conflict_is_refused_with_key_and_remedy(overrides: list[str], key: str, message: str) -> None:
    base = ["replay.capacity=50_000", "replay.samples_per_insert=16", "sender.chunk_steps=64", "learner.batch_size=128"]
    sizes = ["replay.start_size=1000", "agent.count=2", "env.num_envs=8"]
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        check_names(config_of(*base, *sizes, *overrides))
    assert caught.value.key == key
    assert "(--set)" in str(caught.value) or "(cartpole-dqn.yaml line" in str(caught.value)


@pytest.mark.parametrize("agents", [0, 1, 7, 64])
@pytest.mark.parametrize("batch_size", [1, 4096])
@pytest.mark.parametrize("ratio", [0.25, 1000])
def test_default_tolerance_never_conflicts(agents: int, batch_size: int, ratio: float) -> None:
    config = config_of(
        f"agent.count={agents}", f"learner.batch_size={batch_size}", f"replay.samples_per_insert={ratio}"
    )
    limiter = build_replay(config, NOWHERE, seed=0).limiter
    assert limiter is not None
    check_replay(config_of(*(
        f"agent.count={agents}", f"learner.batch_size={batch_size}", f"replay.samples_per_insert={ratio}",
        f"replay.samples_per_insert_tolerance={limiter.tolerance}",
    )))  # fmt: skip


def test_default_tolerance_follows_its_sources() -> None:
    config = config_of("learner.n_step=3", "replay.samples_per_insert=16", "agent.count=2", "sender.chunk_steps=64")
    limiter = build_replay(config, NOWHERE, seed=0).limiter
    assert limiter is not None and limiter.tolerance == 2 * 16 * 2 * 64
    assert build_replay(config_of("replay.samples_per_insert=null"), NOWHERE, seed=0).limiter is None
    given = config_of("replay.samples_per_insert=16", "replay.samples_per_insert_tolerance=5000")
    limiter = build_replay(given, NOWHERE, seed=0).limiter
    assert limiter is not None and limiter.tolerance == 5000


def test_the_band_holds_two_batches_of_sequences_unless_it_is_set() -> None:
    replay = build_replay(config_of(*SEQUENCES), NOWHERE, seed=0)
    assert isinstance(replay, SequenceReplay)
    assert replay.limiter is not None
    assert replay.limiter.tolerance == 2 * 64 * 40
    tight = config_of(*SEQUENCES, "replay.samples_per_insert_tolerance=2560")
    with pytest.raises(ConfigError, match=r"must be >= 2561 = learner.batch_size 64 x 40 steps \+ samples_") as caught:
        check_names(tight)
    assert caught.value.key == "replay.samples_per_insert_tolerance"


def test_sequences_hold_single_steps() -> None:
    with pytest.raises(ConfigError, match=r"learner\.n_step is 3, but sequences hold single steps") as caught:
        check_replay(config_of(*SEQUENCES, "learner.n_step=3"))
    assert caught.value.key == "learner.n_step"


# -- learners ----------------------------------------------------------------------------------------------------------


def test_a_learner_that_does_not_take_what_the_replay_hands_out_is_refused(write: Callable[..., Config]) -> None:
    expected = (
        "replay.class is 'surreal.replay.FIFOReplay', which hands out trajectories, but learner.class, "
        "'surreal.learner.DQNLearner', takes transitions; choose two that fit (app.yaml line 2)"
    )
    with pytest.raises(ConfigError, match=re.escape(expected)) as caught:
        check_names(write(FIFO))
    assert caught.value.key == "replay.class"
    with pytest.raises(ConfigError, match="hands out sequences"):
        check_names(config_of(*SEQUENCES))


def test_a_learner_that_says_nothing_takes_all(write: Callable[..., Config], anything: str) -> None:
    check_names(write(FIFO, anything))
