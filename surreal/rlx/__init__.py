"""RLX: environments that live elsewhere connect over TCP or WebSocket and are driven by an agent.

protocol/    the bytes
client/      what an environment imports
pool/        a server's sessions as an environment pool
server/      connections, sessions, admission

The names here are those of the client, and need neither torch nor Redis nor gymnasium.
"""

from surreal.rlx.client import (
    AgentProxy,
    AgentProxyConnectionError,
    AgentProxyException,
    AgentProxyReplyError,
    RandomAgent,
    TrainingBase,
)
from surreal.rlx.protocol.errors import RlxError

__all__ = [
    "AgentProxy", "AgentProxyConnectionError", "AgentProxyException", "AgentProxyReplyError", "RandomAgent",
    "RlxError", "TrainingBase",
]  # fmt: skip
