"""A replay's side of the streams: leases and bounds, eviction, the samples-per-insert limiter, counts over all shards.

It knows `store`.
"""
