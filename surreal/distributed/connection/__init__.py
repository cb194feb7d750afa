"""Connections: addresses, clients, clusters, the retry policy, scripts, and every key name that Surreal uses in Redis.

The only room of `surreal.distributed` that the others know.
"""
