"""Replays, which keep a part of the stream for a learner, and sample it.

Users pick or subclass the replays at this level. `turn` is the loop of their thread, `state` its data, and `batches`
what they sample and hand out. The subpackages import downwards only:

archive/         replays in files
stream/          a replay's side of Redis: leases, eviction, the limiter
trajectories/    the order of steps across chunks
store/           transitions and observations, in memory or in Redis
"""

from surreal.replay.base import Replay, UniformReplay
from surreal.replay.demonstrations import DemonstrationReplay
from surreal.replay.fifo import FIFOReplay
from surreal.replay.hindsight import HindsightReplay
from surreal.replay.mixed import MixedReplay, MixedTrajectoryReplay
from surreal.replay.prioritized import PrioritizedReplay
from surreal.replay.sequences import PrioritizedSequenceReplay, SequenceReplay, TrajectoryReplay

__all__ = [
    "DemonstrationReplay", "FIFOReplay", "HindsightReplay", "MixedReplay", "MixedTrajectoryReplay",
    "PrioritizedReplay", "PrioritizedSequenceReplay", "Replay", "SequenceReplay", "TrajectoryReplay", "UniformReplay",
]  # fmt: skip
