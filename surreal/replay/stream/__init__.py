"""A replay's side of its streams: leases, bounds, eviction, the samples-per-insert limiter, counts over all shards.

It imports `store`.
"""
