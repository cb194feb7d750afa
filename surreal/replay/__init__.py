"""Replays: what of the stream a learner keeps, and what it draws."""

from surreal.replay.base import Replay
from surreal.replay.prioritized import PrioritizedReplay
from surreal.replay.uniform import UniformReplay

__all__ = ["PrioritizedReplay", "Replay", "UniformReplay"]
