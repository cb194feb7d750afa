"""The sessions of a server as an environment pool, for the agent loop. It knows only `protocol`."""

from surreal.rlx.pool.pool import RlxEnvPool

__all__ = ["RlxEnvPool"]
