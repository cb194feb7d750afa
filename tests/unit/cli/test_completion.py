"""What a shell completes: asked as the shells ask."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from surreal.cli import options
from surreal.cli.options import policies, presets_and_files, run_names
from surreal.cli.program import main
from surreal.config import load_config
from surreal.run.process.arguments import complete_settings


def test_the_shell_gets_presets_runs_and_settings(tmp_path: Path) -> None:
    (tmp_path / "runs" / "demo-1").mkdir(parents=True)
    (tmp_path / "runs" / "demo-1" / "run.id").write_text("demo-1\n")
    # As the script for bash asks; three questions to one Python, for each costs its start.
    program = """
import os, sys
from surreal.cli.program import main

for words in ("surreal run cartpole-p", "surreal status demo", "surreal run x --set learner.gam", "surreal pla"):
    os.environ |= {"_SURREAL_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    sys.argv = ["surreal"]
    main()
    print("--", flush=True)
print([name for name in sys.modules if name in ("torch", "redis", "gymnasium", "pyarrow")])
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    answers = [answer.split() for answer in done.stdout.split("--\n")]
    assert answers[0] == ["cartpole-per-dqn", "cartpole-pg", "cartpole-ppo", "cartpole-pqn", "cartpole-pqn-lstm"]
    assert answers[1] == ["demo-1"]
    assert answers[2] == ["learner.gamma="]
    assert answers[3] == ["play"]
    assert answers[4] == ["[]"], "completion loads something heavy"


def test_files_and_folders_go_on_from_what_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    best = Path("runs/a/eval/best.safetensors")
    best.parent.mkdir(parents=True)
    best.touch()
    for name in ("mine.yaml", "mine.txt", "policy.onnx"):
        Path(name).touch()
    assert presets_and_files("mine") == [("mine.yaml", "")]
    assert policies("") == [str(best), "runs/", "policy.onnx"]
    assert policies("runs/a/e") == [str(best), "runs/a/eval/"]
    assert policies("nowhere/x") == []
    assert run_names("") == []  # its folder has no id


def test_every_setting_that_is_completed_is_one() -> None:
    names = [name.removesuffix("=") for name, _ in complete_settings("")]
    assert {"seed", "learner.batch_size", "env.id", "agent.class"} <= set(names)
    plain = load_config("cartpole-dqn").model_dump(mode="json", by_alias=True)
    for name in names:
        section, _, key = name.rpartition(".")
        assert key in (plain[section] if section else plain), name
    assert dict(complete_settings("learner.gamma"))["learner.gamma="]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_each_shell_has_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_SURREAL_COMPLETE" in script
    assert ("compopt -o nospace" in script) == (shell == "bash")
    if shell == "bash":
        assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "bash, zsh, fish" in capsys.readouterr().err
    assert options.completion.__doc__
