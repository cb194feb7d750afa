"""The `surreal` command, as far as it needs no other process."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import surreal
from surreal.base.errors import SurrealError
from surreal.cli.program import _OTHER_WORDS, app, main
from surreal.config import load_config
from surreal.config.preset_files import preset_names, preset_path
from surreal.plugins.clusters.redis.server import address_for_others
from surreal.run.build.check import check_names, require_display
from surreal.run.lockstep.check import check_parts, check_run
from surreal.run.process.ending import error_line


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SURREAL_REDIS", raising=False)


def test_presets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines.index("CartPole-v1") < lines.index("HalfCheetah-v5   (needs the mujoco extra)")
    assert f"  {'cartpole-sac':27} SAC for discrete actions." in lines[lines.index("CartPole-v1") :]
    assert sum(line.startswith("  ") for line in lines) == len(preset_names())


def test_one_preset_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets", "cartpole-dqn"]) == 0
    assert capsys.readouterr().out == preset_path("cartpole-dqn").read_text(encoding="utf-8")
    assert main(["presets", "cartpol-dqn"]) == 2
    assert "did you mean cartpole-dqn?" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "made"), [("presets", 1), ("k8s", 3), ("preset", 20)])
def test_only_the_command_that_is_asked_for_is_made(name: str, made: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Making all takes a third of the start; they are for suggestions and the list."""
    seen: list[str] = []
    make = typer.main.get_command_from_info
    monkeypatch.setattr(
        typer.main,
        "get_command_from_info",
        lambda **given: (seen.append(str(given["command_info"].name)), make(**given))[1],
    )
    assert main([name, "--nothing"]) == 2
    assert len(seen) >= made if name == "preset" else len(seen) <= made, seen


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"surreal {surreal.__version__}\n"


def test_the_package_is_a_program() -> None:
    answer = subprocess.run([sys.executable, "-m", "surreal", "--version"], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (0, f"surreal {surreal.__version__}\n"), answer.stderr


def test_a_check_says_whether_a_run_is_possible_and_starts_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["run", "cartpole-dqn", "--check", "--run", "mine"]) == 0
    shown = capsys.readouterr().out
    assert shown == f"cartpole-dqn can run, as mine in {tmp_path / 'runs' / 'mine'}; nothing was started or written\n"
    for override, message in (
        ("learner.batch_sise=3", "did you mean learner.batch_size?"),
        ("env.id=CartPol-v1", "did you mean CartPole-v1?"),
        ("learner.args.duoble=true", "did you mean learner.args.double?"),
    ):
        assert main(["run", "cartpole-dqn", "--check", "--set", override]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ")
        assert message in error
    assert list(tmp_path.iterdir()) == []


def test_no_command_and_help_show_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "status" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["run", "--bad"], ["nonsense"], ["redis", "--port", "99999"], ["play", "x", "--episodes", "0"], ["agent", "-x"]],
)
def test_wrong_arguments_exit_with_2(arguments: list[str]) -> None:
    assert main(arguments) == 2


@pytest.mark.parametrize("command", [["run", "cartpole-dqn"], ["status"], ["replay", "info"], ["agent"]])
def test_the_folder_of_a_run_is_no_url(command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main([*command, "--run-dir", "s3://bucket/run"]) == 2
    error = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert "'s3://bucket/run' is a URL, but a run's folder is on this machine" in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "cartpol-dqn"], "did you mean cartpole-dqn?"),
        (["run", "cartpole-dqn", "--set", "learner.batch_sise=3"], "did you mean learner.batch_size?"),
        (["run", "cartpole-dqn", "--set", "learner.batch_size=many"], "learner.batch_size"),
        (["run", "cartpole-dqn", "--set", "env.id=CartPol-v1"], "did you mean CartPole-v1?"),
        (["run", "cartpole-dqn", "--run", "a/b"], "run id 'a/b' must be"),
        (["run", "cartpole-dqn", "--resume"], "--resume needs the run to continue"),
        (["run", "cartpole-dqn", "--resume", "--run", "none"], "holds no run to resume"),
        (["run"], "name a preset or a file"),
        (["run", "cartpole-dqn", "--check", "--verify"], "leave one of them out"),
        (["run", "."], ". is a folder; name a YAML file"),
        (["run", "cartpole-dqn", "--set", "lerner.x=1"], "lerner is not a setting (--set); did you mean learner?"),
        (
            ["run", "cartpole-dqn", "--run-dir", "/proc/none"],
            "/proc/none cannot be a run's folder: no such file",
        ),
        (["status"], "there is no run below runs"),
        (["stop", "--run-dir", "elsewhere"], "elsewhere is not a run's folder, name or id"),
        (["play", "missing"], "missing is neither a run below runs nor a policy of"),
        (["status", "--redis", "ftp://x"], "ftp://x"),
        (["play", "missing.safetensors"], "does not exist"),
        (["play", "x.safetensors", "--show", "--record", "videos"], "exclude each other"),
        (["redis", "--bind", "0.0.0.0"], "without a password"),
        (["redis", "--maxmemory", "lots"], "--maxmemory is 'lots'"),
    ],
)
def test_errors_are_one_line_and_wrong_use_exits_with_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(arguments) == (1 if "does not exist" in message else 2)
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("env.id=CartPol-v1", "did you mean CartPole-v1?"),
        ("eval.env_id=CartPol-v1", "did you mean CartPole-v1?"),
        ("env.id=nowhere:Mine-v0", "No module named 'nowhere'"),
        ("learner.class=nowhere.Mine", "nowhere cannot be imported"),
        ("learner.args.duoble=true", "did you mean learner.args.double?"),
        ("learner.args.intervention_weight=2", "learner.args has intervention_weight, but env.interventions is false"),
        ("learner.args.double=very", "DQNLearner needs true or false (--set)"),
        ("learner.args.device=cpu", "is set by other settings"),
        ("agent.args.exploration=0.1", "is set by other settings"),
        ("replay.args.alpha=1", "is not an argument of UniformReplay"),
    ],
)
def test_what_a_configuration_names_is_checked_before_a_run(setting: str, message: str) -> None:
    with pytest.raises(SurrealError) as caught:
        check_names(load_config("cartpole-dqn", [setting]))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("learner.args.learning_rate=0.1", "did you mean learner.args.initial_learning_rate?"),
        ("env.wrappers=[{name: nonsense}]", "wrapper 'nonsense' does not exist"),
        ("env.wrappers=[{name: time_limit, args: {steps: 1}}]", "time_limit"),
        ("env.kwargs={wind: 1}", "environment CartPole-v1 cannot be made with {'wind': 1}"),
        ("eval.env_kwargs={wind: 1}", "environment CartPole-v1 cannot be made with {'wind': 1}"),
        ("env.id=Pendulum-v1", "QFunction cannot be made: action_space is Box"),
        ("model.args.activation=rellu", "QFunction cannot be made"),
        ("eval.show_ui=true", "eval.show_ui opens a window, but there is no display here"),
    ],
)
def test_what_cannot_be_built_is_found_before_a_run(
    setting: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SurrealError) as caught:
        check_run(load_config("cartpole-dqn", [setting]))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["device=cuda:2"], "device is 'cuda:2', but torch has only cpu and cuda:0 and cuda:1 here; use one of"),
        (["agent.device=mps"], "agent.device is 'mps', but torch has only cpu and cuda:0 and cuda:1 here; use one of"),
        (["agent.device=mps", "agent.count=0", "rlx.servers=1"], "agent.device is 'mps'"),
    ],
)
def test_a_device_that_is_not_here_is_found_before_a_run(
    settings: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: False)
    config = load_config("cartpole-dqn", settings)
    with pytest.raises(SurrealError) as caught:
        check_parts(config)
    assert str(caught.value).startswith(message) and str(caught.value).endswith("(--set)")
    check_parts(config, is_here=False)


def test_agents_that_start_elsewhere_need_no_device_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    check_parts(load_config("cartpole-dqn", ["agent.device=cuda", "agent.count=0", "redis.address=elsewhere:1"]))


def test_pages_are_not_locked_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(SurrealError, match=r"replay.pin_memory is true, but there is no CUDA here.*\(--set\)"):
        check_run(load_config("cartpole-dqn", ["replay.pin_memory=true"]))


def test_a_window_needs_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SurrealError, match="--show opens a window"):
        require_display("--show")
    monkeypatch.setenv("DISPLAY", ":0")
    require_display("--show")


def test_a_server_for_all_shows_an_address_that_others_can_use() -> None:
    assert address_for_others("redis://:x@127.0.0.1:6379", "127.0.0.1") == "redis://:***@127.0.0.1:6379"
    shown = address_for_others("redis://:x@127.0.0.1:6379", "0.0.0.0")
    assert shown.startswith("redis://:***@")
    assert shown.endswith(":6379")
    assert "127.0.0.1" not in shown


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.EADDRINUSE, "address already in use; another program listens there"),
        (errno.ENOSPC, "no space left on device; the disk is full"),
        (errno.EACCES, "permission denied; this user may not do that there"),
    ],
)
def test_what_the_system_refuses_is_one_sentence(number: int, sentence: str) -> None:
    assert sentence in error_line(OSError(number, os.strerror(number)))
    assert error_line(OSError(number, os.strerror(number), "/x")).startswith("/x: ")


def test_variables_set_options_of_commands_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("SURREAL_VERSION", "SURREAL_SHOW_COMPLETION", "SURREAL_INSTALL_COMPLETION"):
        monkeypatch.setenv(name, "1")
    assert main(["presets"]) == 0
    assert "cartpole-dqn" in capsys.readouterr().out
    monkeypatch.setenv("SURREAL_RUN_SEED", "x")
    assert main(["run", "cartpole-dqn", "--check"]) == 2
    assert "--seed" in capsys.readouterr().err
    assert main(["status", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "SURREAL_STATUS" not in shown
    assert "$SURREAL_REDIS" in shown


@pytest.mark.parametrize(
    ("word", "command"), [("parameter-server", "ps"), ("model_graph", "model"), ("metrics-server", "metrics")]
)
def test_words_of_relaax_lead_to_the_command_here(word: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 2
    assert capsys.readouterr().err == f"error: surreal has no command {word}; `surreal {command}` does this\n"


def test_every_other_word_leads_to_a_command_that_exists() -> None:
    commands = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert set(_OTHER_WORDS.values()) <= commands
    assert not set(_OTHER_WORDS) & commands
