"""Slurm: one batch script of a whole run, and the Redis server that it starts.

`surreal slurm render` writes the script: `script.py` what is asked for, which `options.py` has checked; then comes
`job.sh`, the same for all runs. The script calls `surreal slurm redis` (`redis.py`). Used by the command line alone.
"""
