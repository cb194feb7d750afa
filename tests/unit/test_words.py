"""Code and pages are written in plain American English: no area that is done contains a phrase of `tests/words.py`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.words import areas, find_hits, main

AREAS = areas()

REWORDED = {
    '"""An evaluation process keeps score."""': '"""An evaluator scores the current policy."""',
    'Option(help="what there is to train; with a name: that preset")': (
        'Option(help="list presets; with NAME, print that preset")'
    ),
    '"""The newest parameters of a running run at play."""': '"""Watch the current policy play."""',
    'Option(help="What is wrong, or slow, and which setting helps")': (
        'Option(help="diagnose problems and suggest fixes")'
    ),
    'f"{name} says who waits for whom"': 'f"{name} shows which process is the bottleneck"',
    "# Round and round": "# The training loop",
    '"""What came of an action is the reward after it."""': '"""The return of an action is the reward that follows."""',
    "# when somebody dies": "# when a process dies",
    "# hold nobody up for longer": "# delay the others no longer than that",
    "'TRPO is refused, for its step is no gradient'": "'TRPO is not supported: its update is not a gradient step'",
    "# takes every kind of action and forgives most settings": "# supports every action space, robust to its settings",
    "# without a word of its own is mostly the system": "# with no other message is usually the OOM killer",
    "'each as pods of its own, in a namespace of the run\\'s own'": "'each in its own pods, in the run\\'s namespace'",
    "'acts as well as it can, and learns not.'": "'acts greedily and does not learn.'",
    "'A run that goes on here, default: the newest'": "'Run to disturb (default: newest)'",
    'def check(pid):\n    """Say whether a process of this machine is well."""': (
        'def check(pid):\n    """Report a local process\'s health."""'
    ),
    '"""Serve Prometheus what runs say of themselves."""': '"""Export run metrics to Prometheus."""',
    "'nobody is there to be asked'": "'no terminal to confirm on; pass --yes'",
    '"""Where a stream takes nothing more, whose owner keeps so many bytes."""': (
        '"""Append limit of a stream, given the owner\'s byte budget."""'
    ),
    '"""Of whom agents are told what of theirs was applied."""': '"""Most recent senders."""',
    "# spreads news faster": "# propagates rewards faster",
    'Field(description="Of the critics, > 0.")': 'Field(description="Critic learning rate, > 0.")',
    '"""Sum.\n\n    Args:\n        config: of the run.\n    """': (
        '"""Sum.\n\n    Args:\n        config: The configuration of the run.\n    """'
    ),
    'def add_to(app):\n    """Add to."""': 'def add_to(app):\n    """Register the command `train`."""',
    'def mean(values):\n    """Give the mean of them."""': 'def mean(values):\n    """Return 0 if there are none."""',
    "# one wins at once here; the other one loses later; nothing is left of them": (
        "# one wins at once here; the other one loses later"
    ),
    "# the neighbours' colour is normalised towards grey": "# the neighbors' color is normalized toward gray",
    "# it begins anew, beside the others, for ever": "# it starts again, next to the others, forever",
    '"""Which side is slow."""': '"""The slower side."""',
    "'which setting is too high for a batch says `doctor`'": "'`doctor` shows which setting is too high for a batch'",
    "f'{name} is no number, and no more.'": "f'{name} is not a number anymore.'",
}
"""Code with a phrase of the list, and the better wording."""


@pytest.mark.slow
@pytest.mark.parametrize("area", sorted(AREAS))
def test_no_area_has_a_phrase_of_the_list(area: str) -> None:
    hits = [hit for path in AREAS[area] for hit in find_hits(path)]
    assert not hits, "\n".join(["write plain American English:", *map(str, hits)])


@pytest.mark.parametrize("code", REWORDED)
def test_a_phrase_is_found_and_its_better_wording_passes(code: str, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(f"{code}\n")
    assert find_hits(path)
    path.write_text(f"{REWORDED[code]}\n")
    assert not find_hits(path)


def test_a_hit_names_its_line_its_words_and_better_ones(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""A module.\n\nIt starts anew.\n"""\n\nx = "it goes on"  # `anew`, says\n# anew\n')
    assert [(hit.line, hit.words) for hit in find_hits(path)] == [(3, "anew"), (6, "goes on"), (7, "anew")]
    assert re.search(r"module\.py:3: 'anew': 'again'", str(find_hits(path)[0]))


def test_code_of_a_page_is_left_out_but_not_its_comments(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("# Anew\n\n`anew` [text](anew.md)\n\n```bash\nanew  # go on\n```\n\nbeside\nthe\n")
    assert [(hit.line, hit.words) for hit in find_hits(path)] == [(1, "Anew"), (6, "go on"), (9, "beside")]


def test_the_command_prints_hits_and_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text("It starts anew.\n")
    assert main([str(page)]) == 1
    assert "page.md:1: 'anew': 'again'" in capsys.readouterr().out
    monkeypatch.setattr("tests.words.areas", lambda: {"surreal/learner": [page, page]})
    assert main(["--count"]) == 0
    assert capsys.readouterr().out == "     2  surreal/learner\n"
