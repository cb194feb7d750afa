"""The named presets: YAML files in `surreal/config/presets`, used as they are or as a beginning for one's own."""

from __future__ import annotations

from pathlib import Path

from surreal.config.checking.problems import nearest
from surreal.errors import ConfigError

#: Folder of the presets.
PRESETS = Path(__file__).resolve().parents[1] / "presets"


def preset_names() -> list[str]:
    """Give the names of all presets, sorted."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def preset_path(name: str) -> Path:
    """Find a preset's file.

    Raises:
        ConfigError: if there is none of that name; the message has the nearest.
    """
    names = preset_names()
    if name not in names:
        similar = nearest(name, names)
        advice = f"did you mean {similar}?" if similar is not None else f"there are {', '.join(names)}"
        raise ConfigError(f"{name} is neither a file nor a preset; {advice}", source=name)
    return PRESETS / f"{name}.yaml"


def preset_title(name: str) -> str:
    """Give what the first comment line of a preset says of it."""
    first = preset_path(name).read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("#").strip()
