"""The `surreal` script, and `python -m surreal`, for which base/moved.py finds this file: the command line.

A probe of health is asked for every few seconds in every container: it must not wait for the imports of all commands.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def program() -> NoReturn:
    """Be the command."""
    if sys.argv[1:2] == ["health"]:
        from surreal.base.system import probe

        sys.exit(probe.main(sys.argv[2:]))
    from surreal.cli import program as command_line

    command_line.program()


if __name__ == "__main__":
    program()
