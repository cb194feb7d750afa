"""YAML of pages: whole files, and sections that are put into a preset, loaded and checked as `surreal run` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from surreal.config import add_python_path, load_config
from surreal.config.loading.preset_files import preset_path
from surreal.main.build.check import check_run
from surreal.runs.sweep.definition.checking import check_settings
from surreal.runs.sweep.definition.loading import load_definition

#: Which preset a page's sections belong to; other sections belong to one that takes most environments.
_PRESETS = {
    "atari.md": "atari-dqn",
    "replay.md": "cartpole-dqn",
    "self-play.md": "tictactoe-selfplay-ppo",
}
_PRESETS_OF_ENVIRONMENTS = {"ALE": "atari-ppo", "surreal/ViZDoom": "vizdoom-basic-ppo", "Vizdoom": "vizdoom-basic-ppo"}


def check_section(text: str, page: str, folder: Path) -> None:
    """Check the YAML of a page: a sweep's, a whole configuration, or sections that replace those of a preset."""
    sections = yaml.safe_load(text)
    file = folder / "checked.yaml"
    if {"grid", "search"} & set(sections):
        file.write_text(yaml.safe_dump({"version": 1, "base": "cartpole-ppo", **sections}))
        assert check_settings(load_definition(file))
        return
    base: dict[str, Any] = {}
    if "name" not in sections:
        base = yaml.safe_load(preset_path(_preset(sections, page)).read_text())
        base["name"] = "checked"
    file.write_text(yaml.safe_dump(base | sections))
    config = load_config(file)
    add_python_path(config.python_path)
    check_run(config)


def _preset(sections: dict[str, Any], page: str) -> str:
    name = str(sections.get("env", {}).get("id", ""))
    of_environment = [preset for start, preset in _PRESETS_OF_ENVIRONMENTS.items() if name.startswith(start)]
    return (of_environment or [_PRESETS.get(page, "cartpole-ppo")])[0]
