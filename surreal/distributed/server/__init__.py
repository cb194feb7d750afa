"""The embedded redis-server, for single-machine runs, `surreal redis` and tests. It builds on `connection`."""

from surreal.distributed.server.embedded import EmbeddedRedis
from surreal.distributed.server.owners import temporary_run

__all__ = ["EmbeddedRedis", "temporary_run"]
