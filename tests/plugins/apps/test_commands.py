"""`surreal new`, `generate`, `config`, `model` and `run`, as far as they need no run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from surreal.base.system.program import install_command
from surreal.cli.program import main

Shown = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delenv("SURREAL_REDIS", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("algorithm", "environment")]:
        monkeypatch.delitem(sys.modules, name)


def test_from_an_empty_folder_to_an_algorithm_to_edit(
    capsys: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["new", "walker", "-e", "HalfCheetah-v5", "-a", "sac"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("made walker: HalfCheetah-v5, with the settings of halfcheetah-sac\n")
    assert f"it needs: {install_command('mujoco')}" in shown
    assert shown.endswith("next: cd walker && surreal run\n")
    assert main(["new", "bandit"]) == 0
    monkeypatch.chdir(tmp_path / "bandit")
    capsys.readouterr()
    assert main(["run", "--check"]) == 0
    assert "bandit can run" in capsys.readouterr().out
    assert main(["config"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("app.yaml: environment bandit, learner surreal.learner.PolicyGradientLearner")
    assert "\n* bandit-dqn " in shown
    assert "\n  cartpole-dqn " in shown
    assert main(["config", "set", "learner.gamma", "0.5"]) == 0
    assert capsys.readouterr().out == "kept: app.yaml.~1~\n"
    assert main(["config", "explain", "learner.gamma"]) == 0
    assert "now      0.5\n" in capsys.readouterr().out
    assert main(["config", "show", "learner.gamma"]) == 0
    assert capsys.readouterr().out == "0.5\n"
    assert main(["config", "show", "learner.gamma", "--set", "learner.gamma=0.25"]) == 0
    assert capsys.readouterr().out == "0.25\n"
    assert main(["generate", "-a", "ppo"]) == 0
    shown = capsys.readouterr().out
    assert "algorithm/learner.py   copy of surreal.learner.on_policy.ppo\n" in shown
    assert shown.count("kept: ") == 1
    assert main(["model"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("algorithm.model.ActorCritic for bandit")
    assert "policy.output" in shown
    assert main(["config", "-l", "false"]) == 0
    assert "the one of Surreal" in capsys.readouterr().out
    assert main(["generate", "-e", "CartPole-v1"]) == 0
    assert "kept: environment.~1~\n" in capsys.readouterr().out
    assert main(["run", "--check", "--set", "eval.enabled=false", "--set", "run.stop_at_return=null"]) == 0


def test_what_is_wrong_is_one_line_and_ends_with_2(capsys: Shown) -> None:
    for arguments, message in (
        (["new", "x", "-a", "ddpg"], "no ddpg settings for this kind of environment"),
        (["new", "x", "-e", "vizdum"], "is not an environment"),
        (["generate", "-a", "ppo"], "app.yaml does not exist; `surreal new NAME` makes an app"),
        (["generate"], "name what to generate"),
        (["config", "set", "learner.gamma", "1"], "app.yaml does not exist"),
        (["config", "set", "learner.gamma", "1", "learner.n_step"], "learner.n_step has no value"),
        (["config", "explain", "learner.gama"], "did you mean gamma?"),
        (["config", "import", "nothing.yaml"], "cannot be read"),
        (["run"], "there is no app.yaml here"),
        (["run", "environment"], "there is no app.yaml here"),
        (["run", "wsproxy"], "speaks WebSocket itself"),
        (["run", "cartpole-dqn", "cartpole-ppo"], "are two things to train"),
        (["run", "rlx-server", "-c", "app.yaml"], "there is no run below runs"),
    ):
        assert main(arguments) == 2, arguments
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert error.count("\n") == 1
        assert message in error
    assert list(Path.cwd().iterdir()) == []


def test_options_are_read_from_variables_too(capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SURREAL_NEW_ALGORITHM", "dqn")
    assert main(["new", "app"]) == 0
    assert "bandit-dqn" in capsys.readouterr().out


def test_an_import_names_what_was_left_out(capsys: Shown) -> None:
    Path("old.yaml").write_text("algorithm: {name: da3c, hogwild: true, hidden_sizes: [8]}\n")
    assert main(["config", "import", "old.yaml"]) == 0
    shown = capsys.readouterr().out
    assert "made app.yaml with 2 settings of old.yaml" in shown
    assert "  algorithm.hogwild: True: one parameter server writes the parameters" in shown
