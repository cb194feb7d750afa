"""The embedded redis-server, for single-machine runs, `surreal redis` and tests. It knows only `connection`."""

from surreal.distributed.server.embedded import EmbeddedRedis

__all__ = ["EmbeddedRedis"]
