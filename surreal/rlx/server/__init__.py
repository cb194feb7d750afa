"""The server: connections, sessions and admission, in a thread of its own. It knows `protocol` and `pool`."""

from surreal.rlx.server.server import RlxServer
from surreal.rlx.server.settings import ServerSettings

__all__ = ["RlxServer", "ServerSettings"]
