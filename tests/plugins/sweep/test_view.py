"""What a person sees of a sweep."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from surreal.plugins.recorded.listing import ListedRun
from surreal.plugins.sweep.folder import End, Trial
from surreal.plugins.sweep.view import SweepView, ranking, result_table, short_names

RATE, SIZES = "learner.args.initial_learning_rate", "model.args.hidden_sizes"
ENDS = [
    End("finished", 2.0, {0: 2.0}),
    End("failed", reason="seed 0: [no]"),
    End("finished", 9.0, {0: 8.0, 1: 10.0}),
    End("pruned", reason="pruned: low"),
    None,
]
TRIALS = [Trial(number, {RATE: 10.0**-number, SIZES: [8]}, end) for number, end in enumerate(ENDS)]


def shown(width: int, *, is_terminal: bool = False) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=width, force_terminal=is_terminal, color_system=None), text


def test_table_has_the_best_first_and_says_what_became_of_the_others() -> None:
    console, text = shown(80)
    console.print(result_table(TRIALS))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["trial", "score", "over", "seeds", "initial_learning_rate", "hidden_sizes"]
    assert lines[1].split() == ["1", "2", "9", "8", "..", "10", "0.01", "[8]"]
    assert lines[2].split() == ["2", "0", "2", "-", "1", "[8]"]
    assert [line.split()[:2] for line in lines[3:5]] == [["1", "failed"], ["3", "pruned"]]
    assert lines[5].split()[:3] == ["4", "in", "progress"]


def test_equal_scores_rank_in_their_order() -> None:
    trials = [Trial(number, {}, End("finished", 1.0)) for number in range(3)]
    assert [trial.number for trial in ranking(trials)] == [0, 1, 2]
    assert ranking([Trial(0, {})]) == []


def test_names_of_settings_are_as_short_as_they_can_be() -> None:
    keys = ["learner.args.tau", "agent.args.tau", "learner.gamma", "gamma"]
    assert list(short_names(keys).values()) == ["learner.args.tau", "agent.args.tau", "learner.gamma", "gamma"]
    assert short_names(["a.b.c", "a.b.d"]) == {"a.b.c": "c", "a.b.d": "d"}


def test_progress_is_lines_where_there_is_no_terminal() -> None:
    console, text = shown(200)
    now = [0.0]
    with SweepView(console, TRIALS, 8, clock=lambda: now[0]) as view:
        view.begun(TRIALS[0])
        view.ended(TRIALS[1])
        run = ListedRun("r", "running", Path("/x/004-s0"), env_steps=1500, best_return=3.25)
        for now[0] in (1.0, 29.0, 31.0, 32.0):
            view.show([run])
        view.show([run], "draining: x")
    assert text.getvalue().splitlines() == [
        "trial 0 begins: learner.args.initial_learning_rate=1, model.args.hidden_sizes=[8]",
        "trial 1 failed: seed 0: [no]",  # brackets are no markup
        "time 31 s  4 of 8 trials are over, 1 pruned, 1 failed, best so far 9 (trial 2)"
        "  running: 004-s0 1,500 env steps, best return 3.25",
        "time 32 s  4 of 8 trials are over, 1 pruned, 1 failed, best so far 9 (trial 2)  draining: x"
        "  running: 004-s0 1,500 env steps, best return 3.25",
    ]


def test_terminal_shows_the_runs_in_place() -> None:
    console, text = shown(80, is_terminal=True)
    with SweepView(console, TRIALS, 8) as view:
        view.show([ListedRun("r", "running", Path("/x/004-s0"))])
    assert "004-s0  starts" in text.getvalue()


def test_quiet_shows_nothing() -> None:
    console, text = shown(80, is_terminal=True)
    with SweepView(console, TRIALS, 8, is_quiet=True) as view:
        view.begun(TRIALS[0])
        view.show([])
    assert text.getvalue() == ""
