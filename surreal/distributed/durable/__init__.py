"""`DurableReplay`: the guarantees of the replay for programs that have their own trainer."""

from surreal.distributed.durable.reader import DurableBatch
from surreal.distributed.durable.replay import DurableReplay

__all__ = ["DurableBatch", "DurableReplay"]
