"""An embedded redis-server for runs of one machine, `surreal redis` and tests. It knows `connection` alone."""

from surreal.distributed.server.embedded import EmbeddedRedis

__all__ = ["EmbeddedRedis"]
