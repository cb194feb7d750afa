"""Slurm: one batch script of a whole run, and the Redis server that it starts.

`surreal slurm render` writes the script: `script.py` writes the part that depends on the run, from options that
`options.py` has checked; `job.sh`, the same for all runs, follows. The script calls `surreal slurm redis` (`redis.py`).
"""
