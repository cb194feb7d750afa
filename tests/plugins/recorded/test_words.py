"""Metrics in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from surreal.plugins.recorded.curves import _KNOWN, words_of

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("eval/episode_return", ("Evaluation return", "mean return of a round", 1.0)),
        ("rlx/session_bytes", ("Session (rlx)", "MiB", 2.0**-20)),
        ("sender/bytes_total", ("Bytes total (sender)", "MiB in total", 2.0**-20)),
        ("learner/optimize_ms", ("Optimize (learner)", "milliseconds", 1.0)),
        ("gradients/wait_s_total", ("Wait (gradients)", "seconds in total", 1.0)),
        ("mine/own_value", ("Own value (mine)", "own value", 1.0)),
        ("mean return", ("", "mean return", 1.0)),
        ("odd/", (" (odd)", "", 1.0)),
    ],
)
def test_a_metric_has_a_title_and_a_unit(name: str, words: tuple[str, str, float]) -> None:
    assert words_of(name) == words


def test_known_metrics_exist() -> None:
    assert set(_KNOWN) <= set(re.findall(r"`(\w+/\w+)`", PAGE.read_text()))
