"""A replay's side of its streams: leases, bounds, eviction, the limiter, counts of shards. It imports `store`."""
