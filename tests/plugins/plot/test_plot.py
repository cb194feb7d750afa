"""`surreal plot`: pictures, and the numbers in them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from PIL import Image

from surreal.base.system.program import install_command
from surreal.cli.program import main
from tests.recorded import record_run


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("recorded") / "runs"
    for seed in range(3):
        record_run(runs / f"dqn-{seed}", seed=seed, peak=100.0 + seed)
    record_run(runs / "small", overrides=["learner.batch_size=32"], peak=50.0)
    return runs


@pytest.fixture(autouse=True)
def _here(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(recorded, tmp_path / "runs")


def test_seeds_are_one_curve_and_other_settings_another(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "runs", "-o", "out.png"]) == 0
    first, second, written = capsys.readouterr().out.splitlines()
    # The interquartile mean of three is their mean; the band goes from the lowest to the highest mean that was drawn.
    assert first == "cartpole-dqn batch_size=128 (3 runs): eval/episode_return 101 [100, 102] at 1,000"
    assert second == "cartpole-dqn batch_size=32: eval/episode_return 50 at 1,000"
    assert written == "out.png: 4 runs along env steps"
    with Image.open("out.png") as picture:
        assert picture.size == (1080, 570)
        assert {(0, 114, 178), (213, 94, 0)} <= {color[:3] for _, color in picture.convert("RGB").getcolors(1 << 20)}


def test_names_and_labels_are_in_a_vector_picture_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    record_run(Path("runs", "odd"), overrides=['env.kwargs={"note": "<b>$x^2$"}'], peak=5.0)
    arguments = [
        "dqn-*",
        "odd",
        "-m",
        "learner/loss",
        "-m",
        "agent/episode_return",
        "--x",
        "updates",
        "--each",
        "--log",
    ]
    assert main(["plot", *arguments, "--smooth", "0.5", "--title", "Two & more", "-o", "out.svg"]) == 0
    text = Path("out.svg").read_text()
    for word in ("&lt;b&gt;$x^2$", "(3 runs)", "Two &amp; more"):
        assert word in text
    for word in ("Loss", "loss", "mean return", "updates of the learner"):
        assert f">{word}<" in text
    assert "learner/loss" not in text
    before = Path("out.svg").read_bytes()
    assert main(["plot", *arguments, "--smooth", "0.5", "--title", "Two & more", "-o", "out.svg"]) == 0
    assert Path("out.svg").read_bytes() == before  # the bootstrap and the file repeat


def test_a_picture_is_titled_by_its_environments() -> None:
    assert main(["plot", "dqn-*", "-o", "out.svg"]) == 0
    text = Path("out.svg").read_text()
    for word in (">CartPole-v1<", ">Evaluation return<", ">mean return of a round<", ">environment steps<"):
        assert word in text


def test_metrics_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "dqn-0", "small", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7
    assert lines[0].split() == ["agent/env_steps_per_s", "2", "of", "2", "runs"]
    assert not Path("curves.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dqn-9"], "dqn-9 is not a run; did you mean"),
        (["dqn-0", "-m", "learner/los"], "did you mean learner/loss?"),
        (["dqn-0", "-m", "nothing/like-it"], "--list shows their metrics"),
        (["dqn-0", "-o", "out.bmp"], "must end with .png, .svg or .pdf"),
        (["dqn-0", "--x", "hours"], "--x is 'hours'; it must be steps, updates, seconds"),
        (["dqn-0", "--by", "learner.gama"], "learner.gama is a setting of none of these runs"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plot", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("error: ") and error.count("\n") == 1


def test_a_picture_that_cannot_be_written_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "dqn-0", "-o", "none/out.png"]) == 1
    assert "the picture could not be written: none/out.png: no such file" in capsys.readouterr().err


def test_without_matplotlib_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["plot", "dqn-0"]) == 2
    assert install_command("plot") in capsys.readouterr().err


def test_lines_that_were_passed_over_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    with Path("runs", "dqn-0", "metrics.jsonl").open("a") as file:
        file.write("half\n")
    assert main(["plot", "dqn-0"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "warning: dqn-0: 1 line could not be read, and was passed over\n"
    assert captured.out.endswith("curves.png: 1 run along env steps\n")
