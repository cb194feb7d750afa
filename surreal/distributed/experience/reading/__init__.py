"""How chunks reach a replay: downloaded ahead by threads, in order, shard by shard."""
