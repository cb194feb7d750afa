"""The client, with which an agent elsewhere drives an environment. It imports only `protocol`."""

from surreal.rlx.client.agent_proxy import AgentProxy
from surreal.rlx.client.connection import AgentProxyConnectionError, AgentProxyException, AgentProxyReplyError
from surreal.rlx.client.training import RandomAgent, TrainingBase

__all__ = [
    "AgentProxy", "AgentProxyConnectionError", "AgentProxyException", "AgentProxyReplyError", "RandomAgent",
    "TrainingBase",
]  # fmt: skip
