"""ViZDoom's scenarios by name: `basic`, `my_way_home`, or a `.cfg` file of one's own."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from surreal.base.errors import EnvError


def find_scenario(name: str, folder: Path) -> Path:
    """Find a scenario's file.

    Args:
        name: of a file in `folder`, without its ending; in the form of gym's environments too (`DoomMyWayHome`,
            `VizdoomBasic-v1`); or the path of a `.cfg` file.
        folder: of the scenarios that come with ViZDoom.

    Raises:
        EnvError: there is none.
    """
    if name.endswith(".cfg"):
        file = Path(name)
        if not file.is_file():
            raise EnvError(f"scenario is {name}, and there is no such file")
        return file
    plain = re.sub(r"^(Viz)?[Dd]oom|-v\d+$", "", name)
    snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", plain).lower()
    known = {file.stem: file for file in folder.glob("*.cfg")}
    if snake in known:
        return known[snake]
    near = difflib.get_close_matches(snake, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}, or give a .cfg file"
    raise EnvError(f"scenario is {name!r}, which does not exist; {hint}")
