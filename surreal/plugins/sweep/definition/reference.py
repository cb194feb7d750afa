"""Writes the tables of a sweep's settings in docs/many-runs.md, from the schema; a test compares them.

python -m surreal.plugins.sweep.definition.reference
"""

from __future__ import annotations

import sys

from surreal.config.reference import cell, tables_of
from surreal.plugins.sweep.definition.schema import Range, SweepConfig


def render() -> str:
    """Write the tables of all settings."""
    ranges = ["## a range of grid or search.space\n", f"{cell(Range.__doc__)}\n", *tables_of(Range)]
    return "\n".join(["## The file itself\n", *tables_of(SweepConfig), *ranges]).replace("## ", "### ")


if __name__ == "__main__":
    sys.stdout.write(render())
