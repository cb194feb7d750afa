"""Every claim of speed, compared with a peer or a limit in the same run: `python -m benchmarks.transport`."""
