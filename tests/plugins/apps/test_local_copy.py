"""An algorithm's own files in an app: they run unchanged, and an edit acts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from surreal.base.errors import ConfigError
from surreal.config import Config, add_python_path, load_config
from surreal.plugins.apps.creating import new_app, switch_algorithm
from surreal.plugins.apps.local_copy import FOLDER, copy_algorithm
from surreal.run.build.acting import build_model
from surreal.run.build.environments import build_spaces
from surreal.run.build.learning import build_learner
from surreal.run.lockstep.check import check_run


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each test import its own `algorithm`."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in [name for name in sys.modules if name.partition(".")[0] == FOLDER]:
        monkeypatch.delitem(sys.modules, name)


def load(path: Path) -> Config:
    config = load_config(path)
    add_python_path(config.python_path)
    return config


@pytest.mark.parametrize("pair", ["bandit pg", "bandit dqn", "CartPole-v1 ppo", "CartPole-v1 r2d2", "Pendulum-v1 sac"])
def test_copies_are_the_packages_own_files_and_run_unchanged(pair: str, tmp_path: Path) -> None:
    environment, algorithm = pair.split()
    new_app(tmp_path / "app", environment, algorithm)
    path = tmp_path / "app" / "app.yaml"
    copied, kept = copy_algorithm(path)
    assert [path.name for path in copied][:3] == ["agent.py", "learner.py", "model.py"]
    assert kept == [path.with_name("app.yaml.~1~")]
    for file, module in copied.items():
        original = Path(str(sys.modules[module].__file__)).read_text()
        ours = file.read_text().partition("\n")[2].replace(f"from {FOLDER}.", "from ")
        changed = [line for line in ours.splitlines() if line not in original.splitlines()]
        assert all(line.startswith("from ") for line in changed)
    config = load(path)
    assert config.learner.class_path.startswith(f"{FOLDER}.learner.")
    check_run(config.model_copy(update={"eval": config.eval.model_copy(update={"enabled": False})}))
    readme = (tmp_path / "app" / FOLDER / "README.md").read_text()
    assert config.learner.class_path.rpartition(".")[2] in readme
    assert "{{" not in readme


def test_an_edit_of_a_loss_acts_in_the_learner(tmp_path: Path) -> None:
    new_app(tmp_path / "app", "bandit", "ppo")
    path = tmp_path / "app" / "app.yaml"
    copied, _ = copy_algorithm(path)
    losses = next(file for file in copied if file.name == "policy_losses.py")
    losses.write_text(losses.read_text() + "\n\ndef clipped_policy_loss(*_):\n    return 'edited'\n")
    config = load(path)
    learner = build_learner(config, build_model(config, build_spaces(config)), None)
    module = sys.modules[type(learner).__module__]
    assert module.__name__ == "algorithm.learner"
    assert module.clipped_policy_loss() == "edited"  # type: ignore[attr-defined]


def test_copies_that_were_edited_are_kept_when_others_come(tmp_path: Path) -> None:
    new_app(tmp_path / "app", "bandit", "ppo")
    path = tmp_path / "app" / "app.yaml"
    copy_algorithm(path)
    (path.parent / FOLDER / "learner.py").write_text("# mine\n" + (path.parent / FOLDER / "learner.py").read_text())
    assert switch_algorithm(path, "ppo", keeps_settings=True).kept == []
    _, kept = copy_algorithm(path)
    assert [each.name for each in kept] == [f"{FOLDER}.~1~", "app.yaml.~2~"]
    assert (path.parent / f"{FOLDER}.~1~" / "learner.py").read_text().startswith("# mine")


def test_a_class_of_the_users_own_is_not_copied(tmp_path: Path) -> None:
    new_app(tmp_path / "app", "bandit", "ppo")
    path = tmp_path / "app" / "app.yaml"
    (path.parent / "mine.py").write_text(
        "from surreal.learner import PPOLearner\n\n\nclass Mine(PPOLearner):\n    pass\n"
    )
    path.write_text(path.read_text().replace("surreal.learner.PPOLearner", "mine.Mine"))
    add_python_path([str(path.parent)])
    with pytest.raises(ConfigError, match="which is your class"):
        copy_algorithm(path)
