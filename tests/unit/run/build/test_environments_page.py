"""docs/environments.md: what it prints makes environments that can be played."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from surreal.config import add_python_path, load_config
from surreal.run.build.environments import build_env, env_spaces

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "environments.md").read_text()
STAND_IN = ROOT / "tests" / "plugins" / "games" / "lab_stand_in.py"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def _lab(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("deepmind_lab", STAND_IN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "deepmind_lab", module)
    spec.loader.exec_module(module)


@pytest.mark.usefixtures("_lab")
@pytest.mark.parametrize("block", blocks("yaml"), ids=lambda block: re.findall(r"id: (\S+)", block)[0])
def test_the_lines_of_every_kind_make_it(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # games by ViZDoom's own ids write into the working folder
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_module", raising=False)
    (tmp_path / "my_module.py").write_text(blocks("python")[0])
    (tmp_path / "app.yaml").write_text(f"version: 1\n{block}")
    config = load_config(tmp_path / "app.yaml")
    add_python_path(config.python_path)
    env: Any = build_env(config, training=True)
    try:
        spec = env_spaces(env).obs_spec
        assert spec is not None
        for obs in (env.reset(seed=1)[0], env.step(env.action_space.sample())[0]):
            for leaf, value in zip(spec.leaves, spec.flatten(obs), strict=True):
                assert value.shape == leaf.shape
    finally:
        env.close()


def test_every_kind_has_its_lines_and_its_extra_exists() -> None:
    setup = (ROOT / "setup.py").read_text()
    named = set(re.findall(r"^\| .*?\| `([^`]+)` \|", PAGE, re.MULTILINE)) - {"LunarLander-v3", "env.id"}
    assert named == {re.findall(r"id: (\S+)", block)[0] for block in blocks("yaml")} - {"VizdoomBasic-v1"}
    for extra in re.findall(r"Extra `([\w-]+)`", PAGE):
        assert f'"{extra}": ' in setup
