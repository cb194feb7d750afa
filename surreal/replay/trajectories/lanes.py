"""Lanes: which step of which chunk follows which, so that trajectories can be read across chunks.

A *lane* is one environment of one sender, whose steps come in order, spread over chunks. Within a chunk the
steps that it owns stand lane after lane, so a lane's share of a chunk is a few *runs* of consecutive step numbers. A
run continues its lane if it is certain that nothing lies between:

* the sender's chunks came without a gap in their sequence numbers (one that was dropped or lost leaves one);
* the run begins one step after the lane's last step, or at the first step of an episode, if that step ended one.

Otherwise the lane begins anew, in the middle of an episode if need be.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Sender, and the environment's number there.
LaneKey = tuple[str, int]


class Run(NamedTuple):
    """Consecutive steps of one lane."""

    lane: LaneKey
    begin: int  #: number of its first step
    end: int  #: number behind its last step
    previous: int  #: number of the step it continues, -1 if the lane begins anew


class _Tail(NamedTuple):
    number: int  #: of the lane's last step
    step: int  #: its place in its episode
    has_ended: bool


class _Sender:
    def __init__(self) -> None:
        self.sequence = -1
        self.newest = -1
        self.tails: dict[int, _Tail] = {}


class Lanes:
    """Remembers where each lane stands. Used by one thread."""

    def __init__(self) -> None:
        self._senders: dict[str, _Sender] = {}

    def add(
        self,
        chunk_id: str,
        first: int,
        env_ids: NDArray[np.int32],
        step: NDArray[np.int64],
        has_ended: NDArray[np.bool_],
    ) -> list[Run]:
        """Take in the steps that a chunk owns.

        Args:
            chunk_id: `SENDER-SEQUENCE`, as the stream has it.
            first: number of the chunk's first step; the others follow.
            env_ids: [n] environment of each step.
            step: [n] place of each step in its episode.
            has_ended: [n] whether its episode ended with it.

        Returns:
            The chunk's runs, in order.
        """
        if not len(env_ids):
            return []
        name, sequence = parse_chunk_id(chunk_id)
        sender = self._senders.setdefault(name, _Sender())
        if sequence < 0 or sequence != sender.sequence + 1:
            sender.tails.clear()
        sender.sequence = max(sequence, sender.sequence)
        sender.newest = first + len(env_ids) - 1
        goes_on = (env_ids[1:] == env_ids[:-1]) & (step[1:] == np.where(has_ended[:-1], 0, step[:-1] + 1))
        begins = [0, *(np.flatnonzero(~goes_on) + 1).tolist()]
        runs = []
        for begin, end in zip(begins, [*begins[1:], len(env_ids)], strict=True):
            env_id = int(env_ids[begin])
            tail = sender.tails.get(env_id)
            is_next = tail is not None and step[begin] == (0 if tail.has_ended else tail.step + 1)
            runs.append(Run((name, env_id), first + begin, first + end, tail.number if tail and is_next else -1))
            sender.tails[env_id] = _Tail(first + end - 1, int(step[end - 1]), bool(has_ended[end - 1]))
        return runs

    def is_repeated(self, chunk_id: str) -> bool:
        """Whether a chunk of this or a later number came from its sender: it was stored again in an emptied Redis."""
        name, sequence = parse_chunk_id(chunk_id)
        sender = self._senders.get(name)
        return sender is not None and 0 <= sequence <= sender.sequence

    def break_off(self, lane: LaneKey) -> None:
        """Let the lane begin anew with its next run."""
        sender = self._senders.get(lane[0])
        if sender is not None:
            sender.tails.pop(lane[1], None)

    def forget(self, oldest: int) -> None:
        """Forget the senders whose steps all have numbers below `oldest`."""
        gone = [name for name, sender in self._senders.items() if sender.newest < oldest]
        for name in gone:
            del self._senders[name]


def parse_chunk_id(chunk_id: str) -> tuple[str, int]:
    """Sender and sequence number of a chunk; -1 if the id has none."""
    name, _, number = chunk_id.rpartition("-")
    return (name, int(number)) if number.isascii() and number.isdigit() and len(number) < 19 else (chunk_id, -1)
