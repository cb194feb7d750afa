"""How chunks reach a replay: threads download them ahead of time, in order within each shard."""
