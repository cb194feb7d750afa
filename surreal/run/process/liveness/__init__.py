"""Detection of processes that are gone, hang, or took another one's name; docs/liveness.md has all mechanisms."""
