"""Replays: what a learner keeps of the stream, and how it samples.

The modules here are what users pick or subclass. Below them are rooms, which import downwards only:

engine/          the thread that inserts, samples and gathers
archive/         replays in files
stream/          leases, eviction, the limiter: a replay's side of Redis
trajectories/    which step follows which, across chunks
store/           transitions and observations, in memory or in Redis
"""

from surreal.replay.base import Replay, UniformReplay
from surreal.replay.fifo import FIFOReplay
from surreal.replay.mixed import MixedReplay, MixedTrajectoryReplay
from surreal.replay.prioritized import PrioritizedReplay
from surreal.replay.sequences import PrioritizedSequenceReplay, SequenceReplay
from surreal.replay.trajectory_replay import TrajectoryReplay

__all__ = [
    "FIFOReplay",
    "MixedReplay",
    "MixedTrajectoryReplay",
    "PrioritizedReplay",
    "PrioritizedSequenceReplay",
    "Replay",
    "SequenceReplay",
    "TrajectoryReplay",
    "UniformReplay",
]
