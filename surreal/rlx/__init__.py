"""RLX: environments that live elsewhere connect over TCP or WebSocket and are driven by an agent.

The names here are the client's. They need neither torch nor Redis, nor gymnasium.
"""

from surreal.rlx.client import AgentProxy, AgentProxyConnectionError, AgentProxyException, AgentProxyReplyError
from surreal.rlx.errors import RlxError
from surreal.rlx.training import TrainingBase

__all__ = [
    "AgentProxy",
    "AgentProxyConnectionError",
    "AgentProxyException",
    "AgentProxyReplyError",
    "RlxError",
    "TrainingBase",
]
