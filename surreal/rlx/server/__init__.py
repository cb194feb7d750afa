"""The server: connections, sessions and admission, in its own thread. It uses `protocol` and `pool`."""

from surreal.rlx.server.server import RlxServer
from surreal.rlx.server.settings import ServerSettings

__all__ = ["RlxServer", "ServerSettings"]
