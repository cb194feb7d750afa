"""The picture of a run, at several widths and heights, with color and without, with and without data."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from rich.console import Console

from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.run.view.live.frame import Frame, Picture, frame_lines
from surreal.run.view.live.text import ASCII, UNICODE, Glyphs
from surreal.run.view.live.trend import Bound
from surreal.run.view.run_view import RunView

LEARNER = Heartbeat("l", "learner", "learner", 1, "host", 0.0, 50.0, metrics={"learner/updates_per_s": 30.0})
AGENTS = tuple(Heartbeat(f"a{i}", "agent", f"agent-{i}", 100 + i, "host", 0.0, 50.0) for i in range(40))
SNAPSHOT = RunView(
    (LEARNER, AGENTS[0]),
    env_steps=42_000,
    steps_per_s=1234.0,
    episode_return=102.3,
    eval_return=312.0,
    best_return=398.0,
    updates=10_234,
    updates_per_s=312.0,
    replay_fill=0.48,
    samples_per_insert=31.9,
    policy_lag=3.0,
    version=2469,
    limiter_position=0.62,
    learning={"loss": 0.1234, "entropy": 0.6931},
)
VIEW = Picture(
    "cartpole-dqn-20260131-123456-ab12",
    754.0,
    SNAPSHOT,
    bound=Bound("env steps", 42_000, 100_000, 201.0),
    goal=475.0,
    returns=[float(value) for value in range(40)],
    eval_returns=[9.0, 100.0, 250.0, 312.0],
)


def text_of(view: Picture, width: int = 80, rows: int | None = None, glyphs: Glyphs = UNICODE) -> str:
    lines = frame_lines(view, width=width, rows=rows, glyphs=glyphs)
    assert all(line.cell_len <= width for line in lines)
    assert rows is None or len(lines) <= rows
    return "\n".join(line.plain.rstrip() for line in lines)


def test_at_80_columns_everything_has_its_line() -> None:
    assert (
        text_of(VIEW)
        == """\
cartpole-dqn-20260131-123456-ab12                                    12 min 34 s
env steps      █████████░░░░░░░░░░░░░░   42%  3 min 21 s left  42,000 of 100,000
42,000 (1,234/s) env steps   10,234 (312/s) updates   version 2,469
eval return    ▁▃▇█                  312.0  best 398.0  goal 475.0  9.0 to 312.0
return         ▁▁▁▂▂▂▂▂▂▃▃▃▃▃▄▄▄▄▄▄▅▅▅▅▅▅▆▆▆▆▆▇▇▇▇▇▇███       102.3  0.0 to 39.0
replay         ████████████████████████████░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░   48%
balance        ├──────●───┤  learning and acting in balance  31.9 samples/insert
process  rate          version  restarts  state
learner  30 updates/s  -        -         ok
agent-0  -             -        -         ok"""
    )


def test_at_160_columns_there_is_more_of_it() -> None:
    text = text_of(VIEW, 160)
    assert "policy lag 3" in text
    assert "best 398.0  goal 475.0  9.0 to 312.0  low 9.0, high 312.0" in text
    assert "last update    loss 0.123   entropy 0.693" in text
    assert "host, 100" in text


def test_without_utf_8_it_is_ascii() -> None:
    hostile = replace(SNAPSHOT, processes=(replace(LEARNER, name="größe", warning="…", warned=49.0),))
    text = text_of(replace(VIEW, title="größe", view=hostile, phase="füllen"), glyphs=ASCII)
    assert text.isascii()
    assert "env steps      #########..............   42%" in text
    assert "balance        |------o---|  learning and acting in balance" in text


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_console_gets_what_its_encoding_has(encoding: str) -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=file, width=80).print(Frame(VIEW))
    file.seek(0)
    text = file.read()
    assert ("█" in text) is (encoding == "utf-8")
    assert "goal 475.0" in text


def printed(*, no_color: bool, is_terminal: bool = True) -> str:
    text = io.StringIO()
    Console(
        file=text,
        width=80,
        no_color=no_color,
        force_terminal=is_terminal,
        color_system="standard" if is_terminal else None,
    ).print(Frame(VIEW))
    return text.getvalue()


def test_a_colour_says_nothing_that_words_do_not() -> None:
    assert "\x1b[32m" in printed(no_color=False)
    assert "\x1b[32m" not in printed(no_color=True)
    assert "\x1b" not in printed(no_color=True, is_terminal=False)
    troubled = replace(LEARNER, hangs_in="the main loop hangs in learn (my.py line 3)", warning="bad", warned=20.0)
    waiting = replace(AGENTS[0], waits_for=("waiting for credit",))
    text = text_of(replace(VIEW, view=replace(SNAPSHOT, processes=(troubled, waiting, replace(AGENTS[1], age_s=20.0)))))
    assert "hanging        learner: the main loop hangs in learn (my.py line 3)" in text
    assert "waiting        agent-0: waiting for credit" in text
    assert "last warning   learner, 30 s ago: bad" in text
    assert "dead, seen 20 s ago" in text


def test_before_anything_is_known_there_is_the_name_and_what_goes_on() -> None:
    assert text_of(Picture("run", 3.0, phase="starting Redis", phase_s=2.0)) == (
        "run" + " " * 74 + "3 s\nnow            starting Redis, 2 s"
    )
    text = text_of(Picture("run", 3.0, RunView(())))
    assert "0 env steps   0 updates   version 0" in text
    assert [line.split()[-1] for line in text.splitlines() if "return" in line] == ["-", "-"]
    assert "replay" not in text and "samples" not in text and "process" not in text


def test_numbers_that_are_none_are_shown_as_such() -> None:
    nan = math.nan
    broken = replace(
        SNAPSHOT, episode_return=nan, eval_return=nan, best_return=nan, replay_fill=nan, limiter_position=nan
    )
    view = replace(
        VIEW,
        view=broken,
        returns=[nan, nan],
        eval_returns=[1.0, nan, 3.0],
        bound=Bound("eval return", nan, 9.0, None),
    )
    text = text_of(view)
    assert "▁ █" in text
    assert [line.split()[-1] for line in text.splitlines() if line.startswith("return")] == ["nan"]
    assert "nan of 9.0" in text


@pytest.mark.parametrize("width", [1, 5, 20, 39, 40, 60, 79, 80, 120, 160, 300])
@pytest.mark.parametrize("rows", [1, 2, 4, 9, 14, 24, None])
@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
def test_it_fits_any_terminal(width: int, rows: int | None, glyphs: Glyphs) -> None:
    beats = (LEARNER, *(replace(agent, waits_for=(f"waiting {i}",)) for i, agent in enumerate(AGENTS)))
    view = replace(VIEW, view=replace(SNAPSHOT, processes=beats), phase="x" * 200, footer="q")
    assert text_of(view, width, rows, glyphs)


def test_a_short_terminal_keeps_what_says_most() -> None:
    view = replace(VIEW, view=replace(SNAPSHOT, processes=(LEARNER, *AGENTS)), footer="q leaves")
    text = text_of(view, 40, 5)
    assert [line.split()[0] for line in text.splitlines()] == [
        "cartpole-dqn-20260131-1234…",
        "env",
        "42,000",
        "eval",
        "q",
    ]
    assert "40 x agent" in text_of(view, 80, 12)
    assert text_of(view, 80, 24).splitlines()[-1] == "q leaves"


def test_at_the_end_nothing_goes_on_any_more() -> None:
    view = replace(VIEW, is_over=True, view=replace(SNAPSHOT, processes=(replace(LEARNER, waits_for=("x",)),)))
    text = text_of(view)
    assert "left" not in text and "/s" not in text and "waiting" not in text and "process" not in text
    assert "42,000 of 100,000" in text


def test_deadlines_have_a_line_where_agents_keep_time() -> None:
    kept = replace(VIEW, view=replace(SNAPSHOT, deadlines=12_000, missed_deadlines=6, latency_p99_ms=3.21))
    assert "deadlines      6 of 12,000 missed (0.05%)   latency p99 3.2 ms" in text_of(kept)
    assert "deadlines" not in text_of(VIEW)


def test_interventions_have_a_line_where_actions_can_be_replaced() -> None:
    taught = replace(VIEW, view=replace(SNAPSHOT, interventions_per_episode=1.5, intervention_ratio=0.042))
    assert "interventions  1.5 per episode   4.2% of the steps" in text_of(taught)
    assert "interventions" not in text_of(VIEW)
