"""`surreal run --check` can be trusted: what it accepts runs, and what cannot run it refuses.

One case of each class runs always; with SURREAL_TEST_ATTACK=1 (`make attack`), every preset, every template with every
algorithm, and every wrong setting do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from surreal.base.errors import ConfigError
from surreal.config import Config, add_python_path, load_config
from surreal.config.preset_files import PRESETS
from surreal.plugins.apps.configurations import ALGORITHMS
from surreal.plugins.apps.creating import new_app
from surreal.run.build.learning import check_replay
from surreal.run.lockstep.check import check_run
from surreal.run.lockstep.rehearsal import Rehearsal
from tests.attack.wrong_settings import WRONG, Wrong, refusal

#: An error while Box2D's extension is imported would crash Python.
pytestmark = pytest.mark.filterwarnings("ignore:builtin type .* has no __module__ attribute:DeprecationWarning")

T = TypeVar("T")
IS_WHOLE = bool(os.environ.get("SURREAL_TEST_ATTACK"))
LAB = Path(__file__).parents[1] / "plugins" / "games" / "lab_stand_in.py"
#: A browser's page is the environment of `browser`, so its apps are checked and not started; their settings are a
#: bandit's. The last is a user's own class.
TEMPLATES = ["bandit", "browser", "deepmind-lab", "dm-control", "gymnasium", "minigrid", "vizdoom", "my_game:MyGame"]
STEPS = 300


def some(cases: Sequence[T], *numbers: int) -> list[T]:
    """All cases, or those that always run."""
    return list(cases) if IS_WHOLE else [cases[number] for number in numbers]


@pytest.mark.parametrize("preset", some(sorted(path.stem for path in PRESETS.glob("*.yaml")), 0))
def test_every_preset_passes_and_does_an_update(preset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[Any] = []
    learn = Rehearsal.learn
    monkeypatch.setattr(Rehearsal, "learn", lambda self, batch: batches.append(batch) or learn(self, batch))
    check_run(load_config(preset))
    assert len(batches) == 1


@pytest.mark.parametrize("wrong", some(WRONG, 1, 20), ids=lambda wrong: f"{wrong.preset} {next(iter(wrong.settings))}")
def test_what_cannot_run_is_refused_with_its_reason(wrong: Wrong) -> None:
    assert wrong.message in refusal(wrong)


@pytest.mark.parametrize("algorithm", some(list(ALGORITHMS), 3))
@pytest.mark.parametrize("template", some(TEMPLATES, 0))
def test_every_template_with_every_algorithm_is_refused_or_runs(
    template: str, algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "deepmind_lab.py").write_text(LAB.read_text())
    (modules / "my_game.py").write_text("from gymnasium.envs.classic_control import CartPoleEnv as MyGame\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(modules)])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(modules), *filter(None, [os.environ.get("PYTHONPATH")])]))
    for name in [name for name in sys.modules if name.partition(".")[0] in ("environment", "my_game", "deepmind_lab")]:
        monkeypatch.delitem(sys.modules, name)
    folder = tmp_path / "app"
    try:
        new_app(folder, template, algorithm)
    except ConfigError as error:
        assert f"no {algorithm} settings for this kind of environment. It has settings for " in str(error)
        assert f"; {algorithm} suits " in str(error)
        return
    config = load_config(folder / "app.yaml")
    add_python_path(config.python_path)
    check_run(config)
    if template != "browser":
        result = started(folder, config)
        assert result["env_steps"] >= STEPS
        assert result["updates"] > 0


def started(folder: Path, config: Config) -> dict[str, Any]:
    """The result of some steps of an app, with batches that are small enough for an update within them."""
    changes: dict[str, Any] = {
        "run.max_env_steps": STEPS, "run.stop_at_return": None, "eval.enabled": False, "rlx.port": 0,
        "environment.infinite_run": True, "sender.max_delay_s": 0.1, "sender.chunk_steps": 16,
    }  # fmt: skip
    if check_replay(config).hands_out in ("transitions", "sequences"):
        changes |= {"learner.batch_size": 2, "replay.start_size": 64, "replay.samples_per_insert": 1}
    else:
        changes |= {"learner.batch_size": 1, "replay.args.trajectory_steps": 16}
        if config.agent.round_steps is not None:
            changes["agent.round_steps"] = 16
    settings = [f"--set={key}={json.dumps(value)}" for key, value in changes.items()]
    command = [sys.executable, "-m", "surreal", "run", "--run-dir", "run", "--quiet", *settings]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result: dict[str, Any] = json.loads((folder / "run" / "result.json").read_text())
    return result
