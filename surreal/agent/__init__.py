"""Agents: they choose actions with a model, explore, and drive environment pools. They never import Redis.

The main path: `loop.AgentLoop` calls `base.Agent.act_batch`, which calls `_act` of a subclass such as `QAgent`.
"""

from surreal.agent.base import ActContext, Acted, Agent
from surreal.agent.deterministic_agent import DeterministicAgent
from surreal.agent.loop import AgentLoop
from surreal.agent.policy_agent import PolicyAgent, SamplingAgent
from surreal.agent.q_agent import EpsilonGreedy, NoisyQAgent, QAgent
from surreal.agent.rounds import Rounds
from surreal.agent.session_agent import AgentSession, SessionAgent
from surreal.agent.slots import SlotMemory
from surreal.base.contracts import StepSender

__all__ = [
    "ActContext", "Acted", "Agent", "AgentLoop", "AgentSession", "DeterministicAgent", "EpsilonGreedy", "NoisyQAgent",
    "PolicyAgent", "QAgent", "Rounds", "SamplingAgent", "SessionAgent", "SlotMemory", "StepSender",
]  # fmt: skip
