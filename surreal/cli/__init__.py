"""The `surreal` command: one file for each group of commands; `program.py` combines them. Plugins use its options."""
