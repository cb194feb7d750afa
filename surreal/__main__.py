"""`python -m surreal`: the `surreal` command, where its script is not on PATH."""

import sys

from surreal.cli import main

if __name__ == "__main__":
    sys.exit(main())
