"""Callbacks: found by name, called where they are overridden, and an error of theirs says whose it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surreal.base.errors import ConfigError, StoppedError, UserCodeError
from surreal.config import load_config
from surreal.run.evaluation import EvaluationRound
from surreal.run.evaluation.scores import EpisodeScore
from surreal.run.observers import STOP, Callback, StopWithoutImprovement
from surreal.run.observers.callback import Callbacks
from surreal.run.observers.making import check_observers, make_callbacks
from surreal.run.process.attributes import why_fixed

MODULE = """
from surreal.run.observers import Callback, MetricSink

class Heard(Callback):
    def __init__(self, run, process, *, greeting="hello"):
        self.words = [f"{greeting} {run} {process}"]

    def on_episode(self, episode_return, length):
        self.words.append(f"{episode_return} in {length}")

class Harder(Callback):
    def on_evaluation(self, result):
        self.set_environments(gravity=12.0)

class Wrong:
    pass

class HalfASink(MetricSink):
    pass
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "heard_classes.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(lines: str) -> Any:
        path = tmp_path / "app.yaml"
        env = "" if lines.startswith("env:") else "env: {id: CartPole-v1}\n"
        path.write_text(f"version: 1\n{env}{lines}\n")
        return load_config(path)

    return write


def test_a_callback_gets_what_it_names_and_hears_what_it_overrides(write: Any) -> None:
    config = write("callbacks: [{class: heard_classes.Heard, args: {greeting: hi}}]")
    callbacks = make_callbacks(config, print, print, run="r1", process="agent-0", run_dir=Path(), seed=3)
    callbacks.on_broadcast(1, 2)
    callbacks.on_episode(7.5, 12)
    (heard,) = callbacks._callbacks
    assert heard.words == ["hi r1 agent-0", "7.5 in 12"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        ("callbacks: [{class: heard_classes.Herd}]", "callbacks.0.class"),
        ("callbacks: [{class: heard_classes.Wrong}]", "callbacks.0.class"),
        (
            "callbacks: [{class: heard_classes.Heard}, {class: heard_classes.Heard, args: {greting: a}}]",
            "callbacks.1.args",
        ),
        ("callbacks: [{class: heard_classes.Heard, args: {run: mine}}]", None),
        ("sinks: [{class: heard_classes.HalfASink}]", "sinks.0.class"),
        ("sinks: [{class: surreal.run.observers.CsvSink, args: {path: 3}}]", "sinks.0.args.path"),
    ],
)
def test_what_cannot_be_made_is_refused_with_its_line(write: Any, lines: str, key: str | None) -> None:
    config = write(lines)
    if key is None:  # an argument wins over what the run has
        check_observers(config)
        return
    with pytest.raises(ConfigError, match=r"app\.yaml line 3") as caught:
        check_observers(config)
    assert str(caught.value).startswith(key)


class Failing(Callback):
    def __init__(self, error: Exception) -> None:
        self.error = error
        self.is_closed = False

    def on_checkpoint(self, path: str, updates: int) -> None:
        raise self.error

    def close(self) -> None:
        self.is_closed = True
        raise self.error


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("env: {id: CartPole-v1, pool: envpool}", "env.pool is envpool"),
        ("env: {id: ALE/Pong-v5, pool: vector}", "ALE's vector environment"),
        ("env: {id: CartPole-v1}\nagent: {count: 0}\nrlx: {servers: 1}", "connect over RLX"),
        ('env: {id: "game:tictactoe", num_envs: 2}', "a game of several players"),
        ("env: {id: CartPole-v1, pool: vector}", None),
        ("env: {id: CartPole-v1}", None),
    ],
)
def test_a_callback_that_could_not_set_environments_is_refused_at_the_start(
    write: Any, lines: str, why: str | None
) -> None:
    config = write(f"{lines}\ncallbacks: [{{class: heard_classes.Harder}}]")
    if why is None:
        check_observers(config, why_fixed(config))
        return
    with pytest.raises(ConfigError, match=rf"Harder calls set_environments, but .*{why}"):
        check_observers(config, why_fixed(config))
    check_observers(write(f"{lines}\ncallbacks: [{{class: heard_classes.Heard}}]"), why_fixed(config))


def test_an_error_names_the_method_and_its_line() -> None:
    with pytest.raises(UserCodeError, match=r"Failing\.on_checkpoint \(test_callbacks\.py line \d+\) failed: KeyError"):
        Callbacks([Failing(KeyError("a"))]).on_checkpoint("x", 1)
    with pytest.raises(StoppedError):
        Callbacks([Failing(StoppedError("end"))]).on_checkpoint("x", 1)


def test_all_are_closed_although_one_fails(caplog: pytest.LogCaptureFixture) -> None:
    both = Failing(KeyError("a")), Failing(KeyError("b"))
    Callbacks(both).close()
    assert all(each.is_closed for each in both)
    assert "Failing.close" in caplog.text


def test_an_answer_ends_the_run_with_the_methods_name() -> None:
    class Ends(Callback):
        def on_episode(self, episode_return: float, length: int) -> Any:
            return STOP if episode_return > 1.0 else None

    reasons: list[str] = []
    callbacks = Callbacks([Ends(), Callback()], reasons.append)
    callbacks.on_episode(1.0, 5)
    assert reasons == []
    callbacks.on_episode(2.0, 5)
    assert len(reasons) == 1 and reasons[0].endswith("Ends.on_episode asked for it")


def test_no_improvement_for_some_rounds_ends_the_run() -> None:
    ending = StopWithoutImprovement(rounds=2, min_improvement=1.0)

    def answer(mean_return: float) -> Any:
        return ending.on_evaluation(EvaluationRound(0, 1, (EpisodeScore(mean_return, 10, 0),)))

    assert [answer(value) for value in (5.0, 5.5, 7.0, 7.5, 8.0)] == [None, None, None, None, STOP]
    with pytest.raises(ValueError, match="rounds"):
        StopWithoutImprovement(rounds=0)
