"""Tells an agent that the newest parameters have learned from its round, by the listener's messages."""

from __future__ import annotations

from surreal.distributed.parameters.listener import TorchListener
from surreal.run.process.progress import read_learned, read_progress


class ListenedParameters:
    """Parameters as a `TorchListener` brings them; see `surreal.base.contracts.RoundParameters`.

    A learner of several ranks publishes what rank 0 learned from. Agents that send to other ranks are satisfied with
    the next update, which all ranks do together.
    """

    def __init__(self, listener: TorchListener) -> None:
        self._listener = listener
        self._updates = 0  # of the learner, when the wait began

    def hold(self) -> None:
        self._listener.hold()

    def release(self) -> None:
        self._updates = self._count_updates()
        self._listener.release()

    def has_learned(self, sender: str, sequence: int) -> bool:
        learned = read_learned(self._listener.message, sender)
        return self.has_updated() if learned is None else learned >= sequence

    def has_updated(self) -> bool:
        return self._count_updates() > self._updates

    def _count_updates(self) -> int:
        return read_progress(self._listener.message).get("updates", 0)
