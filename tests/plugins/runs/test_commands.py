"""`surreal runs` and `surreal sweep`, as far as they start nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from surreal.cli.program import main
from surreal.config import load_config
from surreal.run.process.ending import Counts, Ending, ExitCode, result_of
from surreal.run.process.run_folder import RunFolder


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SURREAL_REDIS", raising=False)
    monkeypatch.setenv("COLUMNS", "80")


def make(name: str, ending: Ending | None, best: float | None = None, **overrides: Any) -> RunFolder:
    config = load_config("bandit-pg", [f"{key}={value}" for key, value in overrides.items()])
    folder = RunFolder(Path("runs") / name)
    folder.claim()
    folder.begin(config, name, 1000.0 + len(list(Path("runs").iterdir())))
    if ending is not None:
        score = None if best is None else {"mean_return": best}
        folder.write_result(
            result_of(config, name, ending, started=1000.0, time_s=3661.0, counts=Counts(1234), best=score)
        )
        folder.release()
    return folder


FINISHED = Ending("max_env_steps: 1234 env steps were done")
FAILED = Ending("agent-0 failed: boom", ExitCode.FAILED)
INTERRUPTED = Ending("interrupted by SIGINT", ExitCode.INTERRUPTED)


def there() -> set[str]:
    return {path.name for path in Path("runs").iterdir()}


def test_runs_are_listed_within_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    make("one", FINISHED, best=0.5, seed=3)
    make("two-with-a-name-20260131-123456-9f3a", FAILED)
    assert main(["runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["run", "status", "time", "env", "steps", "return"]
    assert lines[1].split() == ["one", "finished", "1:01:01", "1,234", "0.5"]
    assert lines[2].split() == ["two-with-a-name-20260131-123456-9f3a", "failed", "1:01:01", "1,234", "-"]
    assert lines[3] == "two-with-a-name-20260131-123456-9f3a: agent-0 failed: boom"


def test_a_wide_terminal_shows_all_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    make("one", FINISHED, best=0.5, seed=3)
    assert main(["runs"]) == 0
    titles, row = (line.split() for line in capsys.readouterr().out.splitlines())
    assert titles == ["run", "configuration", "seed", "status", "started", "time", "env", "steps", "return", "why"]
    assert (row[2], row[-1]) == ("3", "max_env_steps")


def test_json_has_everything_and_filters_and_order_apply(capsys: pytest.CaptureFixture[str]) -> None:
    make("one", FINISHED, best=0.5)
    make("two", FINISHED, best=0.7)
    make("three", FAILED)
    assert main(["runs", "--json", "--sort", "return", "--status", "finished"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(run["run"], run["best_return"]) for run in found] == [("two", 0.7), ("one", 0.5)]
    assert found[0]["folder"] == str(Path("runs/two").absolute())
    assert main(["runs", "--json", "--name", "t*", "--sort", "name"]) == 0
    assert [run["run"] for run in json.loads(capsys.readouterr().out)] == ["three", "two"]


def test_nothing_to_list_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs"]) == 0
    assert capsys.readouterr().out == "no run\n"
    Path("sweeps/mine/runs").mkdir(parents=True)
    assert main(["runs"]) == 0
    assert capsys.readouterr().out == "no run; those of a sweep: surreal runs --folder sweeps/mine\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--sort", "size"], "--sort is 'size'; it must be one of started, name"),
        (["--status", "done"], "--status is 'done'; it must be one of running, finished"),
        (["--folder", "nowhere"], "nowhere is not a folder"),
        (["compare", "x", "y"], "no run is called 'x'"),
        (["delete", "x"], "no run is called 'x'"),
    ],
)
def test_what_is_wrong_is_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert main(["runs", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def test_compare_shows_what_differs(capsys: pytest.CaptureFixture[str]) -> None:
    make("one", FINISHED, best=0.5)
    make("two", FINISHED, best=0.7, **{"learner.gamma": 0.5})
    assert main(["runs", "compare", "one", "runs/two"]) == 0
    rows = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert rows["learner.gamma"] == ["0.99", "0.5"]
    assert rows["best"] == ["return", "0.5", "0.7"]
    assert not any(name.startswith("env.") for name in rows)
    assert main(["runs", "compare", "one", "one", "--json"]) == 2  # the same run


def test_delete_needs_a_yes(capsys: pytest.CaptureFixture[str]) -> None:
    make("one", FINISHED)
    make("two", FINISHED)
    assert main(["runs", "delete", "one"]) == 2
    assert "nothing was deleted: there is no terminal to confirm on; --yes deletes 1 run" in capsys.readouterr().err
    assert there() == {"one", "two"}
    assert main(["runs", "delete", "t*", "--yes"]) == 0
    assert capsys.readouterr().out.endswith("deleted 1 run\n")
    assert there() == {"one"}


def test_best_runs_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    for number, best in enumerate((0.1, 0.9, 0.5)):
        make(f"r{number}", FINISHED, best)
    make("failed", FAILED)
    assert main(["runs", "delete", "*", "--keep-best", "2", "--yes"]) == 0
    assert there() == {"r1", "r2"}


def test_living_run_is_never_deleted_nor_is_anything_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    make("over", FINISHED)
    living = make("living", None)
    assert main(["runs", "delete", "*", "--yes"]) == 3
    assert "living is alive; `surreal stop` ends a run" in capsys.readouterr().err
    assert there() == {"over", "living"}
    living.write_result(json.loads('{"status": "finished"}'))  # about to end, and still the folder's writer
    assert main(["runs", "delete", "living", "--yes"]) == 3
    assert "belongs to a run that is alive" in capsys.readouterr().err
    living.release()
    assert main(["runs", "delete", "living", "--yes"]) == 0
    assert there() == {"over"}


def test_clean_deletes_what_came_to_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    make("good", FINISHED)
    make("bad", FAILED)
    make("cut", INTERRUPTED)
    make("killed", None).release()
    assert main(["runs", "clean", "--status", "failed", "--yes"]) == 0
    assert there() == {"good", "cut", "killed"}
    assert main(["runs", "clean", "--yes"]) == 0
    assert there() == {"good"}
    capsys.readouterr()
    assert main(["runs", "clean", "--yes"]) == 0
    assert capsys.readouterr().out == "no run to delete\n"


SWEEP = "base: bandit-pg\ngrid: {learner.gamma: [0.9, 0.99]}\nseeds: 2\nparallel: 3\n"


def test_check_of_a_sweep_starts_and_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("lr.yaml").write_text(SWEEP)
    assert main(["sweep", "lr.yaml", "--check"]) == 0
    shown = capsys.readouterr().out
    assert shown == "lr can run: 2 trials of 2 seeds, 3 runs at once; nothing was started or written\n"
    Path("lr.yaml").write_text(SWEEP.replace("learner.gamma", "learner.args.entropy_beat"))
    assert main(["sweep", "lr.yaml", "--check"]) == 2
    error = capsys.readouterr().err
    assert "did you mean learner.args.entropy_beta?" in error
    assert "(lr.yaml line 2)" in error
    assert [path.name for path in Path().iterdir()] == ["lr.yaml"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a sweep's file, or continue a sweep with --resume --dir DIR"),
        (["--resume"], "name a sweep's file"),
        (["none.yaml"], "none.yaml cannot be read"),
        (["--resume", "--dir", "nowhere"], "nowhere has no sweep to continue"),
    ],
)
def test_wrong_arguments_of_a_sweep_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["sweep", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(Path().iterdir()) == []
