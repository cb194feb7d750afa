"""One rule for a run's name: what each name leads to, and what is said of a run that has ended."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from surreal.base.errors import ConfigError
from surreal.cli.program import main
from surreal.config import load_config
from surreal.run.process import finding
from surreal.run.process.arguments import REDIS_VARIABLE
from surreal.run.process.ending import Counts, Ending, result_of
from surreal.run.process.finding import RunOverError, find_run, named_folder, require_folder
from surreal.run.process.run_folder import RunFolder

CONFIG = load_config("cartpole-dqn")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(REDIS_VARIABLE, raising=False)


def ended(name: str, run: str, end: Ending | None = Ending("max_env_steps: 500 env steps")) -> Path:  # noqa: B008
    """The folder of a run that has ended; None: its launcher was killed."""
    folder = RunFolder(Path("runs") / name)
    folder.claim()
    folder.begin(CONFIG, run, 5.0)
    if end is None:
        folder.write_address("unix:///nowhere/redis.sock", run)
        (folder.path / "run.lock").write_text("")
    else:
        best = {"mean_return": 120.0}
        folder.write_result(result_of(CONFIG, run, end, started=5.0, time_s=9.0, counts=Counts(500, 40, 4), best=best))
        folder.release()
    return folder.path


def write_scores(folder: Path, *returns: float) -> None:
    (folder / "eval").mkdir(exist_ok=True)
    lines = [json.dumps({"kind": "round", "round": i, "mean_return": value}) for i, value in enumerate(returns)]
    (folder / "eval" / "scores.jsonl").write_text("\n".join(lines))
    (folder / "eval" / "best.json").write_text(json.dumps({"mean_return": max(returns)}))


@pytest.mark.parametrize("name", ["mine", "runs/mine", "cartpole-7", None])
def test_a_run_is_found_by_folder_name_path_and_id_alike(name: str | None, tmp_path: Path) -> None:
    ended("mine", "cartpole-7")
    assert require_folder(name).path == tmp_path / "runs" / "mine"
    with pytest.raises(RunOverError, match=r"run cartpole-7 is over \(finished: max_env_steps: 500 env steps\)"):
        find_run(name, address=None, run_dir=None)


def test_a_wrong_name_gets_the_nearest_and_no_run_gets_none() -> None:
    with pytest.raises(ConfigError, match="there is no run below runs"):
        require_folder(None)
    ended("mine", "cartpole-7")
    assert named_folder("yours") is None
    with pytest.raises(ConfigError, match=r"mina is not a run's folder, name or id below runs; did you mean mine\?"):
        require_folder("mina")


def test_the_newest_run_is_not_one_that_was_killed_before(tmp_path: Path) -> None:
    killed, finished = ended("killed", "a", None), ended("finished", "b")
    for age, folder in enumerate((finished, killed)):
        os.utime(folder / "run.id", (1000 - age, 1000 - age))
    found = named_folder(None)
    assert found is not None
    assert found.path == finished


def test_a_run_killed_with_its_redis_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "_TIMEOUT_S", 0.1)
    ended("killed", "a", None)
    with pytest.raises(RunOverError, match=r"run a is over \(its launcher was killed\)"):
        find_run("killed", address=None, run_dir=None)


def test_a_run_that_has_no_redis_yet_is_starting_and_not_over() -> None:
    folder = RunFolder(Path("runs") / "new")
    folder.claim()
    folder.begin(CONFIG, "a", 5.0)
    with pytest.raises(ConfigError, match="run a is starting: try again in a second") as raised:
        find_run("new", address=None, run_dir=None)
    assert not isinstance(raised.value, RunOverError)
    folder.release()
    with pytest.raises(RunOverError, match=r"run a is over \(its launcher was killed\)"):
        find_run("new", address=None, run_dir=None)


def test_status_and_top_show_what_an_ended_run_left(capsys: pytest.CaptureFixture[str]) -> None:
    write_scores(ended("mine", "cartpole-7"), 9.0, 120.0, 80.0)
    for arguments in (["status", "mine"], ["top", "cartpole-7"]):
        assert main(arguments) == 0
        shown = capsys.readouterr().out
        for text in ("cartpole-7: over", "finished: max_env_steps: 500 env steps", "120.0", "80.0", "500"):
            assert text in shown
    assert main(["status", "runs/mine", "--json"]) == 0
    plain: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (plain["run"], plain["state"], plain["env_steps"], plain["processes"]) == ("cartpole-7", "over", 500, [])


@pytest.mark.parametrize("command", ["stop", "watch", "metrics"])
def test_commands_that_need_a_run_in_progress_say_that_it_is_over(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended("mine", "cartpole-7")
    assert main([command, "mine"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: run cartpole-7 is over (finished: max_env_steps")
    assert error.count("\n") == 1
