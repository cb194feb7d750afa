"""When parameters go out: after so many updates, but not too often, and what follows from it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from surreal.base.errors import ContractError, RedisUnavailableError
from surreal.config import load_config
from surreal.run.process.progress import read_learned, read_progress, write_progress
from surreal.run.session.publishing import Publishing
from tests.unit.run.session.fakes import Clock, FakeBroadcaster, FakeLearner, FakeReplay


class Bench:
    def __init__(self, *overrides: str) -> None:
        self.clock, self.learner, self.replay = Clock(), FakeLearner(), FakeReplay()
        self.broadcaster = FakeBroadcaster()
        parts: Any = (self.learner.model, self.learner, self.replay, self.broadcaster)
        settings = ["broadcast.interval_updates=10", "broadcast.interval_s=5", *overrides]
        client = cast(Any, SimpleNamespace())
        self.publishing = Publishing(load_config("cartpole-dqn", settings), client, *parts, clock=self.clock)

    def versions(self, updates: int, now_s: float) -> int:
        """How many versions there are after a learner has done so many updates at this time."""
        self.learner.updates, self.clock.now_s = updates, now_s
        self.publishing.after_update()
        return self.broadcaster.version


def test_parameters_go_out_after_enough_updates_and_enough_time() -> None:
    bench = Bench()
    assert bench.versions(9, 100.0) == 0
    assert bench.versions(10, 100.0) == 1  # the first waits for no time to pass
    assert bench.versions(20, 104.9) == 1  # updates enough, but too soon
    assert bench.versions(20, 105.0) == 2
    assert bench.versions(29, 300.0) == 2  # time enough, but too few updates
    assert bench.versions(30, 300.0) == 3


def test_a_broadcast_says_how_far_the_run_is_and_commits_what_it_came_of() -> None:
    bench = Bench()
    bench.versions(10, 100.0)
    assert read_progress(bench.broadcaster.messages[0]) == {"updates": 10, "global_step": 70}
    assert bench.replay.commits == [1]


def test_learner_that_waits_publishes_for_a_consuming_stream_only() -> None:
    bench = Bench()
    bench.learner.updates = 1
    bench.publishing.while_waiting()
    assert bench.broadcaster.version == 0
    bench.replay.stream_mode = "consume"
    bench.publishing.while_waiting()
    assert bench.broadcaster.version == 1
    bench.publishing.while_waiting()  # nothing was learned since
    assert bench.broadcaster.version == 1


def test_start_publishes_a_version_newer_than_any_in_use_unless_the_model_has_no_shape() -> None:
    beats: Any = [SimpleNamespace(version=41, is_alive=lambda: True)]
    bench = Bench()
    bench.publishing.begin(beats)
    assert bench.broadcaster.version == 42
    bench = Bench()
    bench.learner.model.is_materialized = False
    bench.publishing.begin(beats)
    assert (bench.broadcaster.version, bench.broadcaster.messages) == (41, [])


def test_end_publishes_what_was_not_published_and_survives_a_redis_that_is_away() -> None:
    bench = Bench()
    bench.publishing.finish(is_connected=True)
    assert bench.broadcaster.version == 0
    bench.learner.updates = 3
    bench.publishing.finish(is_connected=False)
    assert bench.broadcaster.version == 0
    bench.broadcaster.failure = RedisUnavailableError("gone")
    bench.publishing.finish(is_connected=True)
    bench.broadcaster.failure = None
    bench.publishing.finish(is_connected=True)
    assert bench.broadcaster.version == 1


def test_lag_is_how_many_versions_the_newest_experience_is_behind() -> None:
    bench = Bench()
    bench.broadcaster.version = 7
    assert bench.publishing.metrics() == {"learner/policy_lag_versions": 5.0}
    bench.replay.metrics = dict  # type: ignore[method-assign]
    assert bench.publishing.metrics() == {}


@pytest.mark.parametrize("published", [True, False])
def test_published_parameters_are_known_by_their_version(published: bool) -> None:
    bench = Bench()
    client: Any = SimpleNamespace(
        policy_keys=lambda policy: SimpleNamespace(params=f"key of {policy}"),
        redis=SimpleNamespace(hexists=lambda key, field: published and (key, field) == ("key of default", "version")),
    )
    bench.publishing.client = client
    assert bench.publishing.has_parameters() is published


@pytest.mark.parametrize(
    ("mode", "updates", "expected"), [("consume", 30, 40), ("consume", 40, 40), ("window", 30, 30)]
)
def test_broadcast_that_is_newer_than_the_checkpoint_keeps_what_was_learned_from_consumed_experience(
    mode: str, updates: int, expected: int
) -> None:
    bench = Bench()
    bench.publishing.model = cast(Any, SimpleNamespace(version=7))
    bench.replay.stream_mode, bench.learner.updates = mode, updates
    bench.broadcaster.found, bench.broadcaster.message = True, write_progress(40, 70, None, {"a": 5})
    bench.publishing.take_over(has_checkpoint=True)
    assert bench.learner.updates == expected
    assert bench.replay.learned == {"a": 5}


def test_publishing_again_is_no_round() -> None:
    """A restart, a rollback and an emptied Redis give a newer version that has learned from nothing more."""
    bench = Bench()
    bench.learner.updates, bench.replay.learned = 3, {"a": 5, "b": 2}
    for _ in range(3):
        bench.publishing.publish()
    assert bench.broadcaster.version == 3
    assert len(set(bench.broadcaster.messages)) == 1
    message = bench.broadcaster.messages[-1]
    assert read_progress(message)["updates"] == 3
    assert [read_learned(message, sender) for sender in ("a", "b", "c")] == [5, 2, None]
    for broken in ({"a": -1}, {"a": 0.5}, {"a": None}, ["a"], 7):
        message = json.dumps({"updates": 3, "global_step": 0, "learned": broken})
        assert read_learned(message, "a") is None


def test_learner_without_a_checkpoint_goes_on_from_the_last_broadcast_or_from_scratch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench, model = Bench(), SimpleNamespace(version=7)
    bench.publishing.model = cast(Any, model)
    bench.broadcaster.message = write_progress(40, 70)
    assert not bench.publishing.take_over()
    assert bench.learner.updates == 0
    bench.broadcaster.found = True
    assert bench.publishing.take_over()
    assert bench.learner.updates == 40
    bench.broadcaster.found = ContractError("run r holds parameters of another model", diff=())
    bench.publishing.take_over()
    assert "of no use: run r holds parameters of another model" in caplog.text
