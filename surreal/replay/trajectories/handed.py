"""`Handed`: how far a replay has handed out the trajectories of each sender, so that agents know when to act again.

An agent that acts in rounds sends its trajectories, and waits until parameters have learned from them. It knows the
number of its last chunk; the learner publishes, with the parameters, the number `through` which all trajectories of the
sender were handed out.
"""

from __future__ import annotations

from collections.abc import Iterable

from surreal.replay.trajectories.lanes import parse_chunk_id

#: Most senders to keep: those that sent last.
_MOST_SENDERS = 1024


class Handed:
    """Used by the replay's thread."""

    def __init__(self) -> None:
        self._newest: dict[str, int] = {}

    def note(self, chunk_id: str) -> None:
        """Take note of a chunk that was taken in."""
        sender, sequence = parse_chunk_id(chunk_id)
        self._newest[sender] = max(sequence, self._newest.pop(sender, -1))  # moves it to the end
        if len(self._newest) > _MOST_SENDERS:
            del self._newest[next(iter(self._newest))]

    def through(self, waiting: Iterable[str]) -> dict[str, int]:
        """Give, for each sender, the number of its last chunk of which no complete trajectory waits.

        Args:
            waiting: ids of the chunks that completed the trajectories which will be handed out next; none where they
                are too few for a batch, or the agents would wait for each other.
        """
        found = dict(self._newest)
        for chunk_id in waiting:
            sender, sequence = parse_chunk_id(chunk_id)
            if sender in found:
                found[sender] = min(found[sender], sequence - 1)
        return found
