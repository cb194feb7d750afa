"""Runs on Kubernetes and Slurm, and metrics for scaling them.

Neither system is a dependency: they get text, written from a checked configuration.
"""
