"""The parts of the page, out of what is known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surreal.plugins.dashboard.page import curves, parts, run, sweep
from surreal.plugins.dashboard.page import parts as logs
from surreal.plugins.dashboard.page.curves import Drawing, Stroke, figure
from surreal.plugins.dashboard.page.layout import layout, run_options
from surreal.plugins.dashboard.sources.runs import WatchedRun, key_of
from surreal.plugins.recorded.curves import Axis, Band
from surreal.plugins.recorded.files import LogRecord
from surreal.plugins.recorded.history import RETURN, History
from surreal.plugins.recorded.listing import ListedRun, read_run
from surreal.run.view.live.trend import Bound
from tests.plugins.dashboard.fakes import BEAT, live
from tests.recorded import append, record_run

LISTED = ListedRun("demo", "running", name="cartpole-dqn", env_steps=12_345, best_return=3.5, time_s=100.0)


def words(component: Any) -> str:
    """All text of a component, and the names of its classes."""
    if component is None or isinstance(component, bool | int | float):
        return ""
    if isinstance(component, str):
        return component
    if isinstance(component, list | tuple):
        return " ".join(map(words, component))
    return " ".join([getattr(component, "className", None) or "", words(getattr(component, "children", None))])


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (float("nan"), "–"), (12345.0, "12,345"), (0.0123456, "0.01235"), (1.5e-7, "1.5e-07"), (-3.0, "-3"),
     (12345.6, "12,346"), (487.25, "487.2")],
)  # fmt: skip
def test_numbers_are_shown_as_people_read_them(value: float | None, shown: str) -> None:
    assert parts.number(value) == shown


def test_sizes_times_and_counts_have_their_units() -> None:
    assert [parts.size(value) for value in (None, 12, 2048, 3 << 20, 5 << 30)] == [
        "–", "under 0.1 MiB", "under 0.1 MiB", "3.0 MiB", "5,120.0 MiB"
    ]  # fmt: skip
    assert [parts.duration(value) for value in (0.4, 200, 7200, 93_600)] == ["0 s", "3 min 20 s", "2 h", "1 d 2 h"]
    assert parts.duration(200, is_short=True) == "3 min"
    assert [parts.short_number(value) for value in (950, 12_340, 4.5e6, 2e9)] == ["950", "12.3k", "4.5M", "2G"]


def test_names_from_elsewhere_are_no_markup_in_a_figure() -> None:
    band = Band(*np.array([[1.0, 2.0], [3.0, np.nan], [2.0, np.nan], [4.0, np.nan]]), np.ones(2, np.int64))
    made = figure([Drawing('<a href="http://evil">&x', Stroke("#0072b2"), band)], "env steps", "dark")
    edge, line = made["data"]
    assert line["name"] == '&lt;a href="http://evil"&gt;&amp;x'
    assert line["y"] == [3.0, None]  # JSON has no NaN
    assert (edge["x"], edge["y"], edge["fillcolor"]) == ([1.0, 1.0], [4.0, 2.0], "rgba(0,114,178,0.18)")
    json.dumps(made, allow_nan=False)


@pytest.fixture
def loaded(tmp_path: Path) -> list[curves.Loaded]:
    folders = [record_run(tmp_path / f"seed-{seed}", seed=seed, peak=100.0 + seed) for seed in range(2)]
    folders.append(record_run(tmp_path / "other", overrides=["learner.batch_size=32"]))
    watched = [WatchedRun(read_run(folder), None) for folder in folders]
    return [curves.Loaded(each, each.recorded()) for each in watched]


def test_seeds_are_one_curve_with_a_band_or_each_its_own(loaded: list[curves.Loaded]) -> None:
    view = curves.View([RETURN, "learner/loss"])
    for groups_seeds, labels in ((True, ["cartpole-dqn batch_size=128", "cartpole-dqn batch_size=32"]),
                                 (False, ["seed-0", "seed-1", "other"])):  # fmt: skip
        groups = curves.groups_of(loaded, groups_seeds=groups_seeds)
        assert [group.label for group in groups] == labels
        (shown,) = curves.charts(loaded, groups, view._replace(groups_seeds=groups_seeds))
        assert [chart.children[0].title for chart in shown.children] == [RETURN, "learner/loss"]
        traces = shown.children[0].children[1].figure["data"]
        assert [trace["name"] for trace in traces if "name" in trace] == labels
        assert sum("fillcolor" in trace for trace in traces) == groups_seeds
    (section,) = curves.environments(loaded, view)
    assert "CartPole-v1" in words(section)
    assert "cartpole-dqn batch_size=128 dim legend-label seed-0, seed-1" in words(section)
    assert curves.problems(loaded) == ""


def test_each_environment_has_its_own_charts(loaded: list[curves.Loaded], tmp_path: Path) -> None:
    other = WatchedRun(read_run(record_run(tmp_path / "sac", overrides=["env.id=Acrobot-v1"])), None)
    shown = curves.environments([*loaded, curves.Loaded(other, other.recorded())], curves.View([RETURN, "no/such"]))
    assert [section.children[0].children for section in shown] == ["Acrobot-v1", "CartPole-v1"]
    assert [len(section.children[1].children) for section in shown] == [1, 2]  # of their legends
    assert "id=" not in words([section.children[1] for section in shown])
    for section in shown:
        charts, empty = section.children[2:]
        assert len(charts.children) == 1
        assert words(empty) == "empty  1 of 2 charts have no data yet note no/such"


def test_no_two_of_many_curves_look_alike() -> None:
    strokes = [Stroke.of(number, "light") for number in range(32)]
    assert len({*strokes}) == 32
    assert {stroke.dash for stroke in strokes[:8]} == {"solid"}


def test_bytes_are_drawn_in_mib() -> None:
    ones = np.ones(2)
    band = Band(ones, 3 * 2**20 * ones, *[np.full(2, np.nan)] * 2, np.ones(2, np.int64))
    shown = curves.chart("replay/redis_bytes", [Drawing("a", Stroke("#0072b2"), band)], "time, s", "light")
    assert words(shown.children[0]) == " Redis (replay) dim MiB"
    assert shown.children[1].figure["data"][0]["y"] == [3.0, 3.0]


def test_a_smoothed_curve_of_one_run_is_before_what_it_was(loaded: list[curves.Loaded]) -> None:
    view = curves.View(["learner/loss"], Axis.SECONDS, smoothing=0.9, is_log=True)
    (shown,) = curves.charts(loaded[2:], curves.groups_of(loaded[2:], groups_seeds=True), view)
    made = shown.children[0].children[1].figure
    assert len(made["data"]) == 2
    assert made["layout"]["yaxis"]["type"] == "log"
    assert made["layout"]["xaxis"]["title"]["text"] == "time, s"


def test_what_is_missing_in_curves_is_said(loaded: list[curves.Loaded]) -> None:
    first, second, _ = loaded
    first = first._replace(recorded=first.recorded._replace(progress=0.25))
    second = second._replace(recorded=second.recorded._replace(skipped=3, problem="no room"))
    assert curves.problems([first, second]) == ("reading seed-0 25% · no room · seed-1: 3 unreadable lines passed over")


def test_first_metrics_are_those_that_there_are(loaded: list[curves.Loaded]) -> None:
    assert curves.first_metrics(loaded) == [RETURN, "learner/loss", "agent/env_steps_per_s"]


def test_settings_that_differ_come_first_below_what_runs_have_reached() -> None:
    first, second = {"a": 1, "b": "x", "c": None}, {"a": 1, "b": "y"}
    runs = [LISTED, replace(LISTED, run="other", best_return=4.5)]
    shown = words(parts.settings_table(runs, [first, second]))
    order = [
        "demo",
        "other",
        "best return",
        "3.5",
        "4.5",
        "12,345",
        "differs (2)",
        "key b value",
        "the same in all (1)",
        "key a",
    ]
    assert [text for text in order if text in shown] == order
    assert sorted(order, key=shown.index) == order
    assert "null" in shown and "–" in shown and '"x"' not in shown
    assert "the same in all" not in words(parts.settings_table(runs, [first, second], only_different=True))
    assert "key a" not in words(parts.settings_table(runs, [first, second], contains="B"))
    assert "have the same settings" in words(parts.settings_table(runs, [first, first]))
    assert "1 more runs" in words(parts.settings_table([LISTED] * 13, [first] * 13))
    assert "Choose runs" in words(parts.settings_table([], []))


def test_a_run_that_goes_on_shows_its_progress_and_its_processes() -> None:
    waits = replace(BEAT, waits_for=("credit",), metrics={"agent/env_steps_per_s": 12.5})
    hangs = replace(BEAT, id="2", name="learner", role="learner", hangs_in="optimize in <f>")
    dead = replace(BEAT, id="3", name="agent-1", age_s=60.0)
    seen = replace(live(waits, hangs, dead), bound=Bound("env steps", 340, 680, 100.0))
    shown = words(run.overview(LISTED, seen, History()))
    assert "340 of 680 env steps (50%), 1 min 40 s left" in shown
    timed = replace(seen, bound=Bound("time", 30.0, 120.0, None))
    assert "30 s of 2 min (25%)" in words(run.overview(LISTED, timed, History()))
    assert "state-running" in shown
    shown = words(run.processes(seen))
    for text in (
        "agent-0: credit",
        "state-waits",
        "state-hangs",
        "optimize in <f>",
        "state-dead",
        "12.5 steps/s",
        "host:17",
    ):
        assert text in shown
    shown = words(run.replay(seen))
    for text in ("window", "340", "1.0 MiB", "4.0 MiB", "1 min 30 s", "state-owned"):
        assert text in shown


def test_a_run_that_is_over_shows_what_it_said_last(tmp_path: Path) -> None:
    watched = WatchedRun(read_run(record_run(tmp_path / "demo", peak=40.0)), None)
    history = watched.recorded().history
    shown = words(run.overview(watched.listed, "", history))
    for text in ("state-finished", "max_env_steps", "1,000", "best 40"):
        assert text in shown
    assert "it is over, or elsewhere" in words(run.processes(""))
    history.add("agent-1", 1.0, 10, {"agent/latency_p99_ms": 4.0, "teleop/interventions_total": 2.0})
    history.add("agent-1", 2.0, 20, {"agent/missed_deadlines_total": float("nan")})
    legend, *charts = run.health_charts(history, "light")
    names = ["agent/env_steps_per_s", "agent/latency_p99_ms", "teleop/interventions_total"]
    assert [chart.children[0].title for chart in charts] == names
    assert "agent-0" in words(legend) and "agent-1" in words(legend)
    assert "does not answer: gone" in words(run.overview(LISTED, "gone", history))


def test_records_are_text_and_the_newest_is_at_the_end_where_the_pane_stays() -> None:
    shown = logs.log_lines([LogRecord("2026-01-31T12:34:56.789Z", "agent-0", "INFO", "old"),
                            LogRecord("2026-01-31T12:34:57.789Z", "agent-0", "ERROR", "<b>new</b>")])  # fmt: skip
    newest = shown.children[0]  # the pane is filled from below
    assert newest.className == "log-line level-ERROR"
    assert [span.children for span in newest.children] == ["12:34:57.789", "ERROR", "agent-0", "<b>new</b>"]
    assert "No record fits" in words(logs.log_lines([]))


def test_videos_are_those_of_the_evaluation(tmp_path: Path) -> None:
    assert logs.find_videos(tmp_path) == []
    folder = tmp_path / "eval" / "videos"
    folder.mkdir(parents=True)
    for name in ("a.mp4", "b.mp4", "c.txt"):
        (folder / name).write_bytes(b"x" * 2048)
    (tmp_path.parent / "elsewhere.mp4").write_bytes(b"secret")
    (folder / "link.mp4").symlink_to(tmp_path.parent / "elsewhere.mp4")
    (folder / "broken.mp4").symlink_to("/nowhere")
    (folder / "folder.mp4").mkdir()
    found = logs.find_videos(tmp_path)
    assert {path.name for path in found} == {"a.mp4", "b.mp4"}
    shown = logs.videos("key", found)
    assert {figure.children[0].src for figure in shown.children} == {"/videos/key/a.mp4", "/videos/key/b.mp4"}
    assert "record_video_every" in words(logs.videos("key", []))
    other = tmp_path / "other"
    (other / "eval").mkdir(parents=True)
    (other / "eval" / "videos").symlink_to(folder)
    assert logs.find_videos(other) == []


def test_profiles_are_linked_with_their_shares(tmp_path: Path) -> None:
    assert parts.find_profiles(None) == [] and parts.profiles("key", []) == []
    (tmp_path / "profile.json.gz").write_bytes(b"x")
    (tmp_path / "profile-shares.txt").write_text("learner  60%")
    (tmp_path / "profile-link.json.gz").symlink_to("/etc/passwd")
    (found,) = parts.find_profiles(tmp_path)
    shown = parts.profiles("key", [found])
    assert shown.children[1].href == "/profiles/key/profile.json.gz"
    assert "learner  60%" in words(shown)


def test_a_sweep_shows_its_trials_and_scores_the_best_first(tmp_path: Path) -> None:
    folder = record_run(tmp_path / "lr" / "runs" / "000-s0")
    runs = [read_run(folder), LISTED]
    assert sweep.find_sweeps(runs) == []
    lines: list[dict[str, Any]] = [
        {"kind": "trial", "trial": i, "settings": {"lr": 10.0**-i, "kind": "<b>" if i else "c", "same": 1}}
        for i in range(4)
    ]
    ends = [("finished", 5.0), ("finished", 7.0), ("failed", None)]
    lines += [
        {"kind": "end", "trial": i, "status": status, "score": score, "scores": {"0": 1.0, "1": 9.0}, "reason": "NaN"}
        for i, (status, score) in enumerate(ends)
    ]
    append(tmp_path / "lr" / "trials.jsonl", *lines, {"kind": "end", "trial": 99}, {"trial": []})
    with (tmp_path / "lr" / "trials.jsonl").open("a") as file:
        file.write("[1]\n{cut")
    (place,) = sweep.find_sweeps(runs)
    trials = sweep.read_trials(place)
    assert [(trial.number, trial.status) for trial in trials] == [
        (1, "finished"), (0, "finished"), (2, "failed"), (3, "running")
    ]  # fmt: skip
    shown = words(sweep.sweep_card(place, trials))
    assert "3 of 4 trials" in shown and "1 to 9" in shown and "state-failed" in shown
    by_lr, by_kind = sweep.score_charts(place, trials, "light")
    assert by_lr.children[1].figure["data"][0]["y"] == [7.0, 5.0]
    assert by_kind.children[1].figure["data"][0]["x"] == ["&lt;b&gt;", "c"]
    json.dumps(by_lr.children[1].figure, allow_nan=False)


def test_runs_are_listed_by_their_environments() -> None:
    environments = ["Ant-v5", "CartPole-v1", "Ant-v5", ""]
    runs = {f"{i}": replace(LISTED, environment=environment) for i, environment in enumerate(environments)}
    options = run_options(runs)
    values = [option["label"].children if "disabled" in option else option["value"] for option in options]
    assert values == ["Ant-v5", "0", "2", "CartPole-v1", "1", "environment unknown", "3"]
    assert [option["value"] for option in run_options(runs, "cartpole-v demo") if "disabled" not in option] == ["1"]


def test_runs_are_filtered_by_all_words() -> None:
    runs = {key_of(each): each for each in (LISTED, replace(LISTED, run="other", status="failed"))}
    assert len(run_options(runs)) == 2
    assert [option["value"] for option in run_options(runs, "cartpole FAIL")] == [list(runs)[1]]
    label = run_options(runs)[0]["label"]
    assert (label.children, label.className) == (
        "demo\nrunning · 12.3k steps · best 3.5 · 1 min",
        "listed state-running",
    )
    assert run_options(runs)[0]["title"] == "running"
    assert layout(runs, [RETURN], may_stop=False).className == "app"
