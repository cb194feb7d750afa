"""`python -m surreal.cli`: the same as `surreal`."""

from surreal.cli.program import program

program()
