"""The `surreal` command: one file for each group of commands; `program.py` puts them together.

Commands of plugins use its options. The core does not import this package.
"""
