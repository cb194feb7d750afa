"""Agents: they choose actions with a model, explore, and drive environment pools. No Redis here."""

from surreal.agent.base import Agent
from surreal.agent.exploration import EpsilonGreedy
from surreal.agent.loop import AgentLoop, StepSender
from surreal.agent.q_agent import QAgent

__all__ = ["Agent", "AgentLoop", "EpsilonGreedy", "QAgent", "StepSender"]
