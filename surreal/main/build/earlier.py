"""Going on from an earlier checkpoint of a run: the later ones are set aside, and so it is the newest."""

from __future__ import annotations

from pathlib import Path

_FOLDER, _ASIDE = "checkpoints", "set-aside"


def earlier_checkpoint(restore: str | None, run_dir: Path) -> Path | None:
    """The checkpoint of a run's own folder that `checkpoint.restore` names, by its file name or its path.

    Args:
        restore: the setting.
        run_dir: the run's folder.

    Returns:
        The file, which need not exist; None if the setting names none, or a file elsewhere.
    """
    if restore is None or restore == "latest" or "://" in restore:
        return None
    folder = run_dir.absolute() / _FOLDER
    path = folder / restore if "/" not in restore else Path(restore).absolute()
    is_ours = path.parent.resolve() == folder.resolve() and path.stem.isdigit()
    return folder / path.name if is_ours else None


def set_later_aside(path: Path) -> Path | None:
    """Move the checkpoints of more updates into a folder of their own beside `path`.

    Returns:
        That folder, None if there is none later.
    """
    later = [file for file in path.parent.glob("*.safetensors") if _updates(file) > _updates(path)]
    if not later:
        return None
    number = 1
    while (aside := path.parent / f"{_ASIDE}-{number}").exists():
        number += 1
    aside.mkdir()
    for file in sorted(later, key=_updates, reverse=True):
        file.rename(aside / file.name)
    return aside


def _updates(path: Path) -> int:
    return int(path.stem) if path.stem.isdigit() else -1
