"""The settings of a sweep's file for its page, written from the schema.

    python -m surreal.plugins.sweep.definition.reference

A test compares docs/many-runs.md with what this module writes.
"""

from __future__ import annotations

import sys

from surreal.config.reference import cell, tables_of
from surreal.plugins.sweep.definition.schema import SweepConfig
from surreal.plugins.sweep.definition.space import Range


def render() -> str:
    """Write the tables of all settings."""
    ranges = ["## a range of grid or search.space\n", f"{cell(Range.__doc__)}\n", *tables_of(Range)]
    return "\n".join(["## The file itself\n", *tables_of(SweepConfig), *ranges]).replace("## ", "### ")


if __name__ == "__main__":
    sys.stdout.write(render())
