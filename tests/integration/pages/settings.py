"""YAML of pages: whole files, and sections that are put into a preset, loaded and checked as `surreal run` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from surreal.config import add_python_path, load_config
from surreal.config.preset_files import preset_path
from surreal.plugins.sweep.definition import check_settings, load_definition
from surreal.run.lockstep.check import check_run

#: To which preset sections belong that say such things; others belong to the last one.
_PRESETS = {
    "ALE/": "atari-ppo",
    "ConvQFunction": "atari-dqn",
    "HindsightReplay": "bitflip-her-dqn",
    "SoftActorCritic": "pendulum-sac",
    "PrioritizedReplay": "cartpole-dqn",
    "self_play:": "tictactoe-selfplay-ppo",
    "icm:": "atari-ppo",
    "izDoom": "vizdoom-basic-ppo",
    "": "cartpole-ppo",
}


def check_section(text: str, folder: Path) -> None:
    """Check the YAML of a page: a sweep's, a whole configuration, or sections that replace those of a preset."""
    sections = yaml.safe_load(text)
    file = folder / "checked.yaml"
    if {"grid", "search"} & set(sections):
        file.write_text(yaml.safe_dump({"version": 1, "base": "cartpole-ppo", **sections}))
        assert check_settings(load_definition(file))
        return
    base: dict[str, Any] = {}
    if "name" not in sections:
        preset = next(preset for word, preset in _PRESETS.items() if word in text)
        base = {**yaml.safe_load(preset_path(preset).read_text()), "name": "checked"}
    for name, section in sections.items():
        if isinstance(section, dict) and name != "env":
            # A class of its own has its own arguments, but the other settings stay.
            section = base.get(name, {}) | ({"args": {}} if "class" in section else {}) | section
        base[name] = section
    file.write_text(yaml.safe_dump(base))
    config = load_config(file)
    add_python_path(config.python_path)
    check_run(config)
