"""Slurm: one batch script of a whole run, and the Redis server that it starts.

`surreal slurm render` writes the script: `script.py` checks the options, and writes the part that depends on the run;
`job.sh`, the same for all runs, follows. The script calls `surreal slurm redis` (`redis.py`).
"""
