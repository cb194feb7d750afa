"""`surreal k8s ...` and `surreal health`, as they are typed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from surreal.base.system.health import HealthFile, Vitals
from surreal.base.system.probe import HEALTH_VARIABLE, WORKING
from surreal.cli.program import main

IMAGE = ("--image", "registry.example/surreal:7")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_manifests_go_to_stdout_or_into_a_file_and_warnings_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["k8s", "render", "cartpole-rlx", "--run", "demo", *IMAGE]) == 0
    shown = capsys.readouterr()
    kinds = [each["kind"] for each in yaml.safe_load_all(shown.out)]
    assert kinds[0] == "Namespace" and "Deployment" in kinds
    assert shown.err == "warning: rlx.clients is 4: environments that connect run elsewhere, none is rendered\n"
    assert main(["k8s", "render", "cartpole-rlx", "--run", "demo", *IMAGE, "-o", "demo.yaml"]) == 0
    assert capsys.readouterr().out == ""
    assert Path("demo.yaml").read_text() == shown.out
    assert main(["k8s", "copy", "mine"]) == 0
    assert capsys.readouterr().out == "copied to mine\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["render", "nowhere.yaml", *IMAGE], "nowhere.yaml does not exist"),
        (["render", "cartpole-dqn", *IMAGE, "--set", "agent.cuont=3"], "agent.count"),
        (["render", "cartpole-dqn", *IMAGE, "-o", "no/such/folder.yaml"], "no/such/folder.yaml cannot be written"),
        (["secret", "My_Run"], "cannot be the name of a namespace"),
        (["copy", "."], "already exists"),
    ],
)
def test_what_makes_no_sense_is_one_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["k8s", *arguments]) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.err.startswith("error: ") and shown.err.count("\n") == 1
    assert shown.out == ""


def test_secrets_go_into_a_pipe_and_never_onto_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["k8s", "secret", "demo"]) == 0
    names = [each["metadata"]["name"] for each in yaml.safe_load_all(capsys.readouterr().out)]
    assert names == ["surreal-redis", "surreal-rlx"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["k8s", "secret", "demo"]) == 2
    shown = capsys.readouterr()
    assert "| kubectl create -f -" in shown.err and "stringData" not in shown.out


def test_health_is_a_command_among_others_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(HEALTH_VARIABLE, str(tmp_path / "health"))
    assert main(["health", "agent", "--probe", "liveness"]) == 1
    HealthFile("agent", lambda: Vitals(WORKING), tmp_path / "health").write()
    assert main(["health", "agent", "--probe=liveness"]) == 0
    assert main(["health", "--probe=nothing"]) == 2
    assert main(["health", "--help"]) == 0
    assert "readiness" in capsys.readouterr().out
