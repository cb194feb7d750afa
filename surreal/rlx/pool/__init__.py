"""The sessions of a server as an environment pool, for the agent loop. It knows `protocol` alone."""

from surreal.rlx.pool.pool import RlxEnvPool

__all__ = ["RlxEnvPool"]
