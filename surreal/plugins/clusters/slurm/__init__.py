"""Slurm: one batch script of a whole run, and the Redis server that it starts.

`surreal slurm render` writes the script: `script.py` fills in `head.sh` for the run; `job.sh`, the same for all runs,
follows. The script calls `surreal slurm redis` (`redis/server.py`).
"""
