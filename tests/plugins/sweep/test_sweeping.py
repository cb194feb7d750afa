"""The loop of a sweep, over simulated runs: what is started when, what counts, and going on after any interruption."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from surreal.config import load_config
from surreal.plugins.sweep import definition as loading
from surreal.plugins.sweep.folder import Trial, TrialFile
from surreal.run.process.interrupts import Interrupts
from tests.examples import share
from tests.plugins.sweep.simulated import SimulatedRun, SimulatedRunner, SimulatedSweep

GRID = """
base: bandit-pg
set: {run.stop_at_return: null}
grid: {learner.gamma: [0.5, 0.7, 0.9]}
seeds: [3, 4]
parallel: 2
"""
#: Settings of which nothing else depends.
SEARCH = """
base: bandit-pg
seeds: [3, 4]
parallel: 2
search:
  trials: 12
  sampler: random
  pruner: {type: median, interval_env_steps: 100, startup_trials: 2}
  space: {learner.gamma: {low: 0.1, high: 0.9}}
"""


class KilledError(Exception):
    """Stands for SIGKILL."""


def returns(settings: dict[str, Any], seed: int, number: int) -> float:
    return 100 * float(settings["learner.gamma"]) + seed + number


def ends(trials: TrialFile | list[Trial]) -> list[tuple[str, float | None]]:
    found = trials.trials if isinstance(trials, TrialFile) else trials
    return [(trial.end.status, trial.end.score) for trial in found if trial.end is not None]


def test_every_seed_of_every_combination_runs_once_and_the_score_is_the_mean(tmp_path: Path) -> None:
    sweep = SimulatedSweep(tmp_path / "s", GRID, returns)
    trials = sweep.run()
    assert ends(trials) == [("finished", pytest.approx(value)) for value in (56.5, 76.5, 96.5)]
    assert trials.trials[0].end is not None
    assert trials.trials[0].end.scores == {3: pytest.approx(56.0), 4: pytest.approx(57.0)}
    assert sweep.runner.begun == Counter({f"00{trial}-s{seed}": 1 for trial in range(3) for seed in (3, 4)})
    assert sweep.runner.most == 2


def test_all_that_fits_runs_at_once(tmp_path: Path) -> None:
    text = GRID.replace("parallel: 2", "").replace("seeds: [3, 4]", "seeds: 5")
    sweep = SimulatedSweep(tmp_path / "s", text, returns)
    sweep.run()
    assert sweep.runner.most == 2  # of two processes each, on four cores


def test_failing_trial_is_recorded_with_its_reason_and_does_not_end_the_sweep(tmp_path: Path) -> None:
    def failing(settings: dict[str, Any], seed: int, number: int) -> float:
        if settings["learner.gamma"] == 0.7 and seed == 4:
            raise RuntimeError("it is not what it was")
        return returns(settings, seed, number)

    sweep = SimulatedSweep(tmp_path / "s", GRID, failing)
    trials = sweep.run()
    assert [status for status, _ in ends(trials)] == ["finished", "failed", "finished"]
    assert trials.trials[1].end is not None
    assert trials.trials[1].end.reason == "seed 4: learner failed: it is not what it was"
    # Their keys in Redis: of the one that failed, and of the other one, which was told to stop.
    assert sorted(run.rpartition("-00")[2] for run in sweep.runner.forgotten) == ["1-s3", "1-s4"]
    other = next(run for name, run in sweep.runner.runs.items() if name.endswith("001-s3"))
    assert other.stop_reason == trials.trials[1].end.reason  # told to stop, since nothing comes of it


def test_too_many_failures_end_the_sweep(tmp_path: Path) -> None:
    def failing(settings: dict[str, Any], seed: int, number: int) -> float:
        raise RuntimeError("no")

    sweep = SimulatedSweep(tmp_path / "s", GRID + "max_failures: 1", failing)
    ending = sweep.sweeping.execute(Interrupts())
    assert (ending.reason, int(ending.exit_code)) == ("2 trials failed, max_failures is 1", 1)
    assert len(sweep.trials.trials) == 2
    assert all(run.code is not None for run in sweep.runner.runs.values())
    sweep.folder.release()
    # Who goes on with a larger number gets the rest.
    again = SimulatedSweep(tmp_path / "s", GRID + "max_failures: 9", returns)
    assert [status for status, _ in ends(again.run())] == ["failed", "failed", "finished"]


def test_settings_that_conflict_fail_their_trial_before_anything_starts(tmp_path: Path) -> None:
    text = GRID.replace("learner.gamma: [0.5, 0.7, 0.9]", "learner.batch_size: [4, 16]")
    sweep = SimulatedSweep(tmp_path / "s", text, lambda settings, seed, number: 1.0)
    trials = sweep.run()
    assert [status for status, _ in ends(trials)] == ["finished", "failed"]
    assert trials.trials[1].end is not None
    assert "learner.batch_size is 16, but" in trials.trials[1].end.reason
    assert "(lr.yaml line 4)" in trials.trials[1].end.reason
    assert not any(name.startswith("001") for name in sweep.runner.begun)


def test_evaluation_without_a_finite_return_is_no_score(tmp_path: Path) -> None:
    sweep = SimulatedSweep(tmp_path / "s", "base: bandit-pg\nscore: {evaluation: last}", lambda *_: None)
    (trial,) = sweep.run().trials
    assert trial.end is not None
    assert "seed 0: it has no score" in trial.end.reason


def test_run_that_is_killed_is_resumed_but_not_for_ever(tmp_path: Path) -> None:
    sweep = SimulatedSweep(tmp_path / "s", "base: bandit-pg", lambda *_: 1.0)
    for _ in range(40):
        sweep.sweeping.step()
        sweep.sweeping.step()  # it begins, and has no time for more
        sweep.runner.cut_off()
    (trial,) = sweep.trials.trials
    assert trial.end is not None
    assert trial.end.reason.startswith("seed 0: it ended 4 times before its limit, last with -9")
    assert (sweep.runner.begun["000-s0"], sweep.runner.resumed["000-s0"]) == (1, 3)


def test_hopeless_trial_is_pruned_and_its_runs_are_told(tmp_path: Path) -> None:
    sweep = SimulatedSweep(tmp_path / "s", SEARCH, returns)
    trials = sweep.run()
    statuses = Counter(status for status, _ in ends(trials))
    assert statuses["pruned"] > 0
    assert statuses["finished"] >= 2
    assert statuses.total() == 12
    pruned = next(trial for trial in trials.trials if trial.end is not None and trial.end.status == "pruned")
    assert pruned.end is not None
    assert "env steps is not worth continuing" in pruned.end.reason
    best = max(trials.trials, key=lambda trial: trial.settings["learner.gamma"])
    assert best.end is not None
    assert best.end.status == "finished"
    told = {run.stop_reason for run in sweep.runner.runs.values()} - {""}
    assert pruned.end.reason in told


@pytest.mark.parametrize("text", [GRID, SEARCH], ids=["grid", "search"])
def test_sweep_that_is_killed_at_any_moment_goes_on_and_counts_everything_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Cut off at many moments: before and after lines that it writes, runs that it starts and steps that runs take."""
    if text is SEARCH:  # what is pruned depends on when it is looked at
        text = SEARCH.replace("trials: 12", "trials: 3").replace("startup_trials: 2", "startup_trials: 99")
    whole = ends(SimulatedSweep(tmp_path / "whole", text, returns).run())
    assert len(whole) == 3
    moments = 0
    left = -1

    def count_down() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KilledError

    def around(method: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            count_down()
            result = method(*args, **kwargs)
            count_down()
            return result

        return call

    config = load_config("bandit-pg")
    # Loading a configuration is most of what a sweep without processes costs.
    monkeypatch.setattr(loading, "load_config", lambda *_, **__: config)
    monkeypatch.setattr(TrialFile, "_add", around(TrialFile._add))
    monkeypatch.setattr(SimulatedRunner, "start", around(SimulatedRunner.start))
    monkeypatch.setattr(SimulatedRun, "_go_on", around(SimulatedRun._go_on))
    while True:
        moments += round(4 / share())
        path, begun, was_killed = tmp_path / f"cut-{moments}", Counter[str](), False
        left = moments
        try:
            sweep = SimulatedSweep(path, text, returns, begun)
            sweep.run()
        except KilledError:
            was_killed = True
            sweep.cut_off()
        left = -1
        if not was_killed:
            break
        again = SimulatedSweep(path, text, returns, begun)
        trials = again.run()
        if text.find("search") < 0:
            assert ends(trials) == whole
        assert [status for status, _ in ends(trials)] == ["finished"] * 3
        for trial in trials.trials:
            expected = 100 * trial.settings["learner.gamma"] + 3.5 + 3
            assert trial.end is not None
            assert trial.end.score == pytest.approx(expected)
        # A run that had begun is never begun again; one that was killed before it wrote anything may be.
        assert max(begun.values()) <= 2
        rounds = [len(each.read_text().splitlines()) for each in path.glob("runs/*/eval/scores.jsonl")]
        assert rounds == [4] * 6
    assert moments > 50


def test_interruption_drains_and_says_so(tmp_path: Path) -> None:
    sweep = SimulatedSweep(tmp_path / "s", GRID, returns)
    sweep.sweeping.step()
    sweep.sweeping.step()
    interrupts = Interrupts()
    interrupts.end("interrupted by SIGINT")
    ending = sweep.sweeping.execute(interrupts)
    assert ending.reason == "interrupted by SIGINT"
    assert all(run.code == 130 for run in sweep.runner.runs.values())
    assert ends(sweep.trials) == []
    sweep.folder.release()
    again = SimulatedSweep(tmp_path / "s", GRID, returns)
    assert [status for status, _ in ends(again.run())] == ["finished"] * 3
    assert again.runner.resumed == Counter({"000-s3": 1, "000-s4": 1})


def test_runs_that_an_earlier_process_left_are_waited_for(tmp_path: Path) -> None:
    first = SimulatedSweep(tmp_path / "s", "base: bandit-pg", lambda *_: 1.0)
    first.sweeping.step()
    first.sweeping.step()  # the run goes on without the sweep
    first.folder.release()
    second = SimulatedSweep(tmp_path / "s", "base: bandit-pg", lambda *_: 1.0)
    for _ in range(5):
        assert second.sweeping.step()
    assert second.runner.runs == {}
    first.runner.cut_off()
    second.run()
    assert second.runner.resumed == Counter({"000-s0": 1})
    assert ends(second.trials) == [("finished", 1.0)]
