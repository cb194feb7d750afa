"""Agents: they choose actions with a model, explore, and drive environment pools. They never import Redis.

The main path: `loop.AgentLoop` calls `base.Agent.act_batch`, which calls `_act` of a subclass such as `QAgent`.
"""

from surreal.agent.base import ActContext, Acted, Agent
from surreal.agent.deterministic_agent import DeterministicAgent
from surreal.agent.exploring.epsilon_greedy import EpsilonGreedy
from surreal.agent.loop import AgentLoop
from surreal.agent.noisy_q_agent import NoisyQAgent
from surreal.agent.policy_agent import PolicyAgent
from surreal.agent.q_agent import QAgent
from surreal.agent.rounds import Rounds
from surreal.agent.sampling_agent import SamplingAgent
from surreal.agent.session_agent import AgentSession, SessionAgent
from surreal.agent.slots import SlotMemory
from surreal.base.contracts import StepSender

__all__ = [
    "ActContext",
    "Acted",
    "Agent",
    "AgentLoop",
    "AgentSession",
    "DeterministicAgent",
    "EpsilonGreedy",
    "NoisyQAgent",
    "PolicyAgent",
    "QAgent",
    "Rounds",
    "SamplingAgent",
    "SessionAgent",
    "SlotMemory",
    "StepSender",
]
