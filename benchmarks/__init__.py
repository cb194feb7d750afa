"""Every claim of speed, as a comparison with a peer or a limit in the same run. Run one: `python -m benchmarks.transport`."""
