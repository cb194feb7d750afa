"""`surreal run --check`: whether a run is possible, found out without starting or writing anything."""

from __future__ import annotations

from surreal.config import add_python_path
from surreal.run.launch.prepare import RunOptions, prepare
from surreal.run.lockstep.check import check_run


def check(options: RunOptions) -> str:
    """Say in a sentence that the run is possible.

    Raises:
        SurrealError: it is not.
    """
    prepared = prepare(options)
    add_python_path(prepared.config.python_path)
    check_run(prepared.config, resumed=prepared.folder.path if options.resume else None)
    where = f"{prepared.run} in {prepared.folder.path}"
    return f"{prepared.config.name} can run, as {where}; nothing was started or written"
