"""The program of a Doom game, which ViZDoom starts beside this process: what it leaves behind is cleaned up.

ViZDoom's program does not notice when whoever started it is killed: it would wait for the next action for ever. So a
guard, a shell whose standard input ends with this process, ends it then, and removes its shared memory and settings.
And each game makes an empty folder where it is started.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

#: $1 is the process, $2 what the names of its shared memory end with, $3 its folder. A word means that all is well.
_GUARD = 'read word || { kill -9 "$1"; rm -rf /dev/shm/ViZDoom*"$2" "$3"; }'
_FOLDER = Path("_vizdoom")


class DoomGuard:
    """Ends a game's program if this process is killed.

    Args:
        game: a `vizdoom.DoomGame` that was initialised.
        folder: where it keeps its settings.
    """

    def __init__(self, game: Any, folder: str) -> None:
        name = str(game.get_instance_id())
        self._shell: subprocess.Popen[bytes] | None = None
        for child in psutil.Process().children():
            with suppress(psutil.Error):
                if name in child.cmdline():
                    # In a session of its own, so that Ctrl-C does not end the guard before what it guards.
                    self._shell = subprocess.Popen(
                        ["sh", "-c", _GUARD, "sh", str(child.pid), name, folder],
                        stdin=subprocess.PIPE,
                        stderr=subprocess.DEVNULL,
                        start_new_session=True,
                    )

    def close(self) -> None:
        """The game has ended by itself."""
        shell, self._shell = self._shell, None
        if shell is not None:
            with suppress(OSError):
                shell.communicate(b"done\n")


@contextmanager
def without_folder() -> Iterator[None]:
    """Remove the folder that a game makes while it is started, unless it was there before."""
    is_ours = not _FOLDER.exists()
    yield
    if is_ours:
        with suppress(OSError):
            _FOLDER.rmdir()
