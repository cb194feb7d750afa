"""Where torch keeps what it compiles: in the run's folder, and not in /tmp for ever."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from pathlib import Path

_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def keep_torch_out_of_tmp(run_dir: Path, stack: ExitStack) -> None:
    """Say where torch's optimizers make their compiler cache, unless the user did; removed if nobody compiles."""
    if _VARIABLE not in os.environ:
        folder = (run_dir / "torch-cache").absolute()
        os.environ[_VARIABLE] = str(folder)
        stack.callback(_remove_if_empty, folder)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
