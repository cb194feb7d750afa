"""`python -m surreal`: the `surreal` command, where its script is not on PATH."""

from surreal.cli import program

if __name__ == "__main__":
    program()
