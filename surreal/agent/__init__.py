"""Agents: they choose actions with a model, explore, and drive environment pools. They never import Redis."""

from surreal.agent.base import Agent
from surreal.agent.exploration import EpsilonGreedy
from surreal.agent.loop import AgentLoop, StepSender
from surreal.agent.q_agent import QAgent

__all__ = ["Agent", "AgentLoop", "EpsilonGreedy", "QAgent", "StepSender"]
