"""The `surreal` command: one file for each group of commands; `program.py` puts them together.

Nothing of the package imports this part.
"""

from surreal.cli.program import app as app
from surreal.cli.program import main as main
from surreal.cli.program import program as program
