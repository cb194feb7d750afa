"""`surreal play`: a policy from a file, shown, recorded, or refused."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import gymnasium
import pygame
import pytest

import surreal
from surreal.base.checkpoint import save_checkpoint
from surreal.base.errors import ConfigError
from surreal.cli.program import main
from surreal.config import Config, load_config
from surreal.config.loading import apply_overrides, parse_override
from surreal.envs.terminal import Colors, Screen
from surreal.run.build.acting import build_model, restore_model
from surreal.run.build.environments import build_spaces
from surreal.run.build.saved_policy import load_policy
from surreal.run.process.registry import plain_config
from surreal.run.view.play import EpisodeDisplay, fresh_rng, play_policy
from tests.policies import write_policy


@pytest.fixture(scope="module")
def config() -> Config:
    return load_config("cartpole-dqn", ["model.args.hidden_sizes=[8]"])


@pytest.fixture
def policy_file(config: Config, tmp_path: Path) -> Path:
    return write(tmp_path / "best.safetensors", config)


def write(path: Path, config: Config, *, kind: str = "policy", plain: object = "its own") -> Path:
    tensors = build_model(config, build_spaces(config)).tensors()
    prefix = "model/" if kind == "learner" else ""
    content = {"kind": kind, "version": 7, "config": plain_config(config) if plain == "its own" else plain}
    save_checkpoint(path, {f"{prefix}{name}": tensor for name, tensor in tensors.items()}, content, step=7)
    return path


def test_episodes_are_played_and_repeat_with_the_seed(policy_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for _ in range(2):
        assert main(["play", str(policy_file), "--episodes", "3", "--seed", "5"]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    assert outputs[0].count("episode ") == 3
    assert "mean return" in outputs[0]


def test_another_environment_and_settings_change_what_is_played(
    policy_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gymnasium.register("ShortCartPole-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=3)
    try:
        assert main(["play", str(policy_file), "--episodes", "2", "--env", "ShortCartPole-v0"]) == 0
        assert capsys.readouterr().out.count("3 steps") == 2
    finally:
        del gymnasium.registry["ShortCartPole-v0"]
    assert main(["play", str(policy_file), "--episodes", "2", "--set", "env.kwargs.max_episode_steps=4"]) == 0
    assert capsys.readouterr().out.count("4 steps") == 2
    assert main(["play", str(policy_file), "--set", "eval.smaple=true"]) == 2
    assert "did you mean eval.sample" in capsys.readouterr().err
    assert main(["play", str(policy_file), "--env", "CartPole-v9"]) == 1


def test_a_stochastic_policy_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_policy(tmp_path / "best.safetensors", "cartpole-ppo")
    outputs = []
    for more in ([], ["--stochastic"]):
        assert main(["play", str(file), "--episodes", "3", "--seed", "5", *more]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] != outputs[1]


def test_learners_checkpoint_plays_the_same(config: Config, policy_file: Path, tmp_path: Path) -> None:
    other = load_policy(write(tmp_path / "0000000007.safetensors", config, kind="learner"))
    policy = load_policy(policy_file)
    assert policy.version == other.version == 7
    assert play_policy(policy, 4, rng=fresh_rng(1)) == play_policy(other, 4, rng=fresh_rng(1))


def test_every_episode_is_recorded(policy_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    videos = tmp_path / "videos"
    assert main(["play", str(policy_file), "--episodes", "2", "--record", str(videos)]) == 0, capsys.readouterr().err
    assert sorted(path.name for path in videos.iterdir()) == ["play-episode-0.mp4", "play-episode-1.mp4"]
    assert all(path.stat().st_size > 1000 for path in videos.iterdir())
    assert f"videos in {videos}" in capsys.readouterr().out


def test_policy_is_played_twice_at_once_and_a_folder_of_videos_has_one_writer(
    policy_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy, videos = load_policy(policy_file), tmp_path / "videos"
    others = []

    def play_beside(number: int, score: object) -> None:
        others.append(play_policy(policy, 1, rng=fresh_rng(1)))
        others.append(main(["play", str(policy_file), "--episodes", "1", "--record", str(videos)]))

    scores = play_policy(policy, 1, rng=fresh_rng(1), view=EpisodeDisplay(record=videos), on_episode=play_beside)
    assert others == [scores, 3]
    assert f"error: {videos} gets the videos of process " in capsys.readouterr().err
    (video,) = videos.iterdir()
    assert video.stat().st_size > 1000


def test_window_is_opened(
    policy_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    flips = []
    flip = pygame.display.flip
    monkeypatch.setattr(pygame.display, "flip", lambda: (flips.append(1), flip()))
    monkeypatch.setattr(pygame.time, "Clock", type("Clock", (), {"tick": lambda self, rate: None}))
    assert main(["play", str(policy_file), "--episodes", "1", "--show"]) == 0, capsys.readouterr().err
    assert len(flips) > 5


def test_showing_and_recording_at_once_is_refused(policy_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        EpisodeDisplay(record=tmp_path / "v", show=True)


class Terminal(io.StringIO):
    """Notes what is drawn; on the picture number `interrupted`, Ctrl-C is pressed."""

    interrupted = -1

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.getvalue().count(PICTURE) == self.interrupted:
            self.interrupted = -1
            raise KeyboardInterrupt
        return written


PICTURE, LEFT = "\x1b[H", "\x1b[?1049l"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal()
    monkeypatch.setattr("surreal.envs.terminal.open_screen", lambda: Screen(terminal, Colors.MANY))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return terminal


def test_terminal_shows_every_step_and_the_scores_afterwards(policy_file: Path, terminal: Terminal) -> None:
    assert main(["play", str(policy_file), "--episodes", "1", "--terminal", "--seed", "1"]) == 0
    drawn, _, said = terminal.getvalue().partition(LEFT)
    length = int(re.search(r"episode 0: return \d+, (\d+) steps\nmean return", said)[1])  # type: ignore[index]
    assert drawn.count(PICTURE) == length + 1
    assert drawn.count("▀") > 20 * length
    assert f"episode 0  step {length}  return {length}" in drawn


def test_ctrl_c_gives_the_terminal_back(policy_file: Path, terminal: Terminal) -> None:
    terminal.interrupted = 3
    assert main(["play", str(policy_file), "--episodes", "1", "--terminal"]) == 130
    assert terminal.getvalue().endswith(LEFT)


def test_what_is_no_terminal_is_not_drawn_on(policy_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", str(policy_file), "--terminal"]) == 1
    assert "--terminal draws on a terminal, but" in capsys.readouterr().err
    assert main(["play", str(policy_file), "--terminal", "--show"]) == 2
    assert "--show and --terminal exclude each other" in capsys.readouterr().err


def test_a_runs_folder_is_played_by_its_best_policy(
    config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "eval").mkdir()
    write(tmp_path / "eval" / "best.safetensors", config)
    assert main(["play", str(tmp_path), "--episodes", "1"]) == 0
    assert "mean return" in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["cut off", "damaged", "neither a policy", "no configuration", "cannot read", "fit"])
def test_file_that_cannot_be_played_is_one_sentence(
    damage: str, config: Config, policy_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if damage == "cut off":
        policy_file.write_bytes(policy_file.read_bytes()[:-20])
    elif damage == "damaged":
        data = bytearray(policy_file.read_bytes())
        data[-5] ^= 0xFF
        policy_file.write_bytes(data)
    elif damage == "neither a policy":
        write(policy_file, config, kind="recipe")
    elif damage == "no configuration":
        write(policy_file, config, plain=None)
    elif damage == "cannot read":
        write(policy_file, config, plain={"version": 1, "env": {"idd": "CartPole-v1"}})
    else:
        wider = load_config("cartpole-dqn", ["model.args.hidden_sizes=[9]"])
        write(policy_file, config, plain=plain_config(wider))
    assert main(["play", str(policy_file)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert damage in error


def test_model_begins_with_the_checkpoint_to_restore(config: Config, tmp_path: Path) -> None:
    spaces = build_spaces(config)
    path = write(tmp_path / "start.safetensors", config)
    other = config.model_copy(
        update={"seed": 9, "checkpoint": config.checkpoint.model_copy(update={"restore": str(path)})}
    )
    model, wanted = build_model(other, spaces), build_model(config, spaces).tensors()
    restore_model(other, model)
    assert all(tensor.equal(wanted[name]) for name, tensor in model.tensors().items())
    assert model.version == 0
    path.unlink()
    restore_model(other, model)
    assert all(tensor.equal(wanted[name]) for name, tensor in model.tensors().items())


@pytest.mark.parametrize(
    "setting",
    [
        "env.id=stranger:Env", "eval.env_id=stranger:Env-v0", "env.id=game:stranger.Game",
        "env.id=pettingzoo.stranger", "env.id=GymV21Environment-v0",
        "model.class=stranger.Model", "agent.class=stranger.Agent",
        "agent.class=surreal.api.train", "agent={class: surreal.agent.SessionAgent, args: {session: stranger.Session}}",
        "env.wrappers=[{class: stranger.Wrapper}]",
        "env.wrappers=[{name: 'stranger.W'}]", "self_play.reference=stranger.player",
    ],
)  # fmt: skip
def test_nothing_that_a_file_names_is_imported_without_trust(
    setting: str, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = tmp_path / "was imported"
    (tmp_path / "stranger.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    plain = plain_config(config)
    apply_overrides(plain, {}, [parse_override(text) for text in (setting, f"python_path=[{tmp_path}]")])
    file = write(tmp_path / "gift.safetensors", config, plain=plain)
    for words in (["play"], ["export"], ["rlx-server", "--exploit", "--checkpoint"]):
        assert main([*words, str(file)]) != 0
        assert "if you trust it, add --trust (in Python: trust=True)" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="would import"):
        surreal.load(file)
    assert not mark.exists()
    assert str(tmp_path) not in sys.path


def test_what_a_trusted_file_names_is_imported(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "friend.py").write_text("from gymnasium.envs.classic_control import CartPoleEnv as Env\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    plain = plain_config(config)
    plain["env"]["id"], plain["python_path"] = "friend:Env", [str(tmp_path)]
    file = write(tmp_path / "best.safetensors", config, plain=plain)
    assert main(["play", str(file), "--episodes", "1", "--trust"]) == 0
    assert surreal.load(file, trust=True).config.env.id == "friend:Env"


def test_folders_of_a_file_that_is_not_trusted_are_ignored(config: Config, tmp_path: Path) -> None:
    plain = plain_config(config)
    plain["python_path"] = ["/nowhere"]
    file = write(tmp_path / "best.safetensors", config, plain=plain)
    assert main(["play", str(file), "--episodes", "1"]) == 0
    assert "/nowhere" not in sys.path
