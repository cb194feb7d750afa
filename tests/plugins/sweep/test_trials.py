"""The file of a sweep's trials: what is written is read again, and a line that was cut off never was."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from surreal.base.errors import FolderError
from surreal.plugins.sweep.folder import End, TrialFile


def written(path: Path) -> TrialFile:
    trials = TrialFile(path)
    trials.begin("lr-1")
    first = trials.add({"learner.gamma": 0.9, "model.args.hidden_sizes": [8, 8]})
    second = trials.add({"learner.gamma": 0.99})
    trials.end(second, End("pruned", reason="hopeless", scores={1: 2.0}, reports={100: math.nan}))
    trials.end(first, End("finished", 3.5, {0: 3.0, 1: 4.0}, reports={100: 1.0, 200: 2.0}))
    return trials


def test_trials_are_read_as_they_were_written(tmp_path: Path) -> None:
    before, after = written(tmp_path / "trials.jsonl"), TrialFile(tmp_path / "trials.jsonl")
    assert (after.sweep, after.started) == ("lr-1", before.started)
    assert after.trials[0] == before.trials[0]
    assert after.trials[0].end == End("finished", 3.5, {0: 3.0, 1: 4.0}, reports={100: 1.0, 200: 2.0})
    end = after.trials[1].end
    assert end is not None
    assert (end.status, end.reason, dict(end.scores)) == ("pruned", "hopeless", {1: 2.0})
    assert math.isnan(end.reports[100])
    assert after.open == []


def test_file_cut_off_anywhere_goes_on_after_its_last_whole_line(tmp_path: Path) -> None:
    written(tmp_path / "whole")
    whole = (tmp_path / "whole").read_bytes()
    path = tmp_path / "cut"
    for size in range(0, len(whole) + 1, 3):
        path.write_bytes(whole[:size])
        trials = TrialFile(path)
        assert path.read_bytes() == whole[: whole[:size].rfind(b"\n") + 1]
        trials.add({"x": 1})
        again = TrialFile(path)
        assert [trial.settings for trial in again.trials] == [trial.settings for trial in trials.trials]
        assert again.trials[-1].settings == {"x": 1}
        assert [trial.end is None for trial in again.trials] == [trial.end is None for trial in trials.trials]


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "[]",
        '{"kind": "odd"}',
        '{"kind": "trial", "trial": 5, "settings": {}}',
        '{"kind": "end", "trial": 9}',
        '{"kind": "end", "trial": 0, "status": "failed", "score": null, "scores": {}, "reason": "", "reports": {}}',
    ],
)
def test_line_that_makes_no_sense_is_refused_with_its_number(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trials.jsonl"
    written(path)
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(FolderError, match=r"trials\.jsonl line 6 is invalid"):
        TrialFile(path)
