"""Slurm: one batch script of a whole run."""
