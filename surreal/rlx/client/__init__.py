"""The client: what an environment imports to be driven by an agent elsewhere. It knows only `protocol`."""

from surreal.rlx.client.agent_proxy import (
    AgentProxy,
    AgentProxyConnectionError,
    AgentProxyException,
    AgentProxyReplyError,
)
from surreal.rlx.client.training import RandomAgent, TrainingBase

__all__ = [
    "AgentProxy",
    "AgentProxyConnectionError",
    "AgentProxyException",
    "AgentProxyReplyError",
    "RandomAgent",
    "TrainingBase",
]
