"""How processes of a run notice that another one is gone, hangs, or took their name; see docs/liveness.md."""
