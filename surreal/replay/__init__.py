"""Replays: what of the stream a learner keeps, and what it draws."""

from surreal.replay.base import Replay
from surreal.replay.fifo import FIFOReplay
from surreal.replay.mixed import MixedReplay
from surreal.replay.prioritized import PrioritizedReplay
from surreal.replay.sequences import SequenceReplay
from surreal.replay.trajectory_replay import TrajectoryReplay
from surreal.replay.uniform import UniformReplay

__all__ = [
    "FIFOReplay",
    "MixedReplay",
    "PrioritizedReplay",
    "Replay",
    "SequenceReplay",
    "TrajectoryReplay",
    "UniformReplay",
]
