"""Connections: addresses, clients, clusters, retries, scripts, and every name that Surreal uses in Redis.

The only room of `surreal.distributed` that the others know.
"""
