"""Replays: what of the stream a learner keeps, and what it draws."""

from surreal.replay.base import Replay
from surreal.replay.uniform import UniformReplay

__all__ = ["Replay", "UniformReplay"]
