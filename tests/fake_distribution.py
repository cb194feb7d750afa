"""A package with entry points that is found on the path as an installed one is."""

from __future__ import annotations

from pathlib import Path


def write_distribution(folder: Path, name: str, entry_points: str, modules: dict[str, str]) -> None:
    """Write modules and metadata into a folder; put the folder on `sys.path` to install the package.

    Args:
        folder: existing or new.
        name: of the distribution.
        entry_points: content of `entry_points.txt`.
        modules: source of each module.
    """
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    for module, source in modules.items():
        (folder / f"{module}.py").write_text(source)
