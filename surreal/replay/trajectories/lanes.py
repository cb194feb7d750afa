"""Lanes: the order of steps across chunks, and how lanes are cut into trajectories.

A *lane* is one environment of one sender, whose steps come in order, spread over chunks. Within a chunk, the
steps that it owns stand lane after lane, so a lane's share of a chunk is a few *runs* of consecutive step numbers. A
run continues its lane if it is certain that nothing lies between:

* the sender's chunks came without a gap in their sequence numbers (a chunk that was dropped or lost leaves a gap);
* the run begins one step after the lane's last step, or at the first step of an episode if that step ended one.

Otherwise the lane begins again, in the middle of an episode if necessary.

`Cutter` cuts lanes into trajectories of T steps, each step in exactly one, in order. A trajectory begins after the last
one, and ends of episodes do not shorten it: it has the T steps of its environment that one round of an agent consists
of. A lane that breaks off leaves a shorter trajectory, whose last rows are filled.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surreal.replay.store.rows import Ring, sample_uniform

#: Sender, and the environment's number there.
LaneKey = tuple[str, int]
_UNKNOWN = np.iinfo(np.int64).max


class Run(NamedTuple):
    """Consecutive steps of one lane."""

    lane: LaneKey
    begin: int  #: number of its first step
    end: int  #: number behind its last step
    previous: int  #: number of the step it continues, -1 if the lane begins again


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
    """The last step of each lane. Used by one thread."""

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
        """Take in the steps that a chunk, `SENDER-SEQUENCE`, owns: the first has the number `first`, and the others
        follow. Each step [n] has its environment, its place in its episode, and whether the episode ended with it.
        Return the chunk's runs, in order.
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
        """Begin the lane again with its next run."""
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


class Cut(NamedTuple):
    """One trajectory."""

    start: int  #: number of its first step
    oldest_version: int  #: of its steps' parameter versions; -1 if none is known
    steps: int  #: T; fewer where its lane broke off
    chunk_id: str = ""  #: id of the chunk that completed it


class _Piece:
    """The open trajectory of a lane."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.steps = 0
        self.oldest = _UNKNOWN
        self.newest = -1
        self.since_s = 0.0

    def cut(self) -> Cut:
        return Cut(self.start, -1 if self.oldest == _UNKNOWN else self.oldest, self.steps)


@dataclass(eq=False, repr=False)
class Cutter:
    """The open trajectory of every lane."""

    length: int  #: T, steps of a trajectory, >= 1
    _: KW_ONLY
    #: whether agents act with one version for T steps of each environment. A trajectory in which the version changes
    #: has lost steps; it is filled up, and the next one begins with the new version
    in_rounds: bool = False

    def __post_init__(self) -> None:
        self._pieces: dict[LaneKey, _Piece] = {}

    def __len__(self) -> int:
        return len(self._pieces)

    def add(self, run: Run, version: NDArray[np.integer], *, now_s: float = 0.0) -> list[Cut]:
        """Add a run that came at `now_s`, whose steps `version` [n] acted in (-1: unknown); return what is complete."""
        piece = self._pieces.pop(run.lane, None)
        cuts = []
        if piece is not None and run.previous < 0:
            cuts.append(piece.cut())
            piece = None
        known = np.where(version < 0, _UNKNOWN, version.astype(np.int64))
        changes = np.flatnonzero(version[1:] != version[:-1]) + 1 if self.in_rounds else np.empty(0, np.int64)
        begin, count = 0, len(version)
        while begin < count:
            if self.in_rounds and piece is not None and piece.newest != version[begin]:
                cuts.append(piece.cut())
                piece = None
            piece = piece or _Piece(run.begin + begin)
            end = min(count, begin + self.length - piece.steps)
            if (place := int(np.searchsorted(changes, begin, side="right"))) < len(changes):
                end = min(end, int(changes[place]))
            piece.oldest = min(piece.oldest, int(known[begin:end].min()))
            piece.newest = int(version[end - 1])
            piece.steps += end - begin
            begin = end
            if piece.steps == self.length:
                cuts.append(piece.cut())
                piece = None
        if piece is not None:
            piece.since_s = now_s
            self._pieces[run.lane] = piece
        return cuts

    def break_off(self, before_s: float) -> list[tuple[LaneKey, Cut]]:
        """End the lanes that received nothing since then; return their trajectories, oldest first."""
        idle = [lane for lane, piece in self._pieces.items() if piece.since_s < before_s]
        idle.sort(key=lambda lane: self._pieces[lane].start)
        return [(lane, self._pieces.pop(lane).cut()) for lane in idle]


#: How often starts are drawn before all of them are listed.
_MAX_TRIES = 8


class StartIndex:
    """The steps that begin a whole sequence of `length` rows; `size` steps are expected to be alive."""

    def __init__(self, length: int, size: int) -> None:
        self.length = length
        self.count = 0  #: number of starts
        self._ring = Ring({"is_start": ((), np.bool_)}, size)
        # By the last step of each lane: the steps that need further rows, and the number of rows from each to the end.
        self._waiting: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def append(self, steps: int) -> None:
        self._ring.append({"is_start": np.zeros(steps, np.bool_)}, steps)

    def add(self, run: Run, has_ended: NDArray[np.bool_], may_begin: NDArray[np.bool_]) -> None:
        """Take in a run of consecutive steps of a lane, for which there is room: [n] whether an episode ended with the
        step, and whether a sequence may begin with it, once enough rows follow.
        """
        rows = 1 + has_ended.astype(np.int64)
        behind = np.cumsum(rows)
        numbers = np.arange(run.begin, run.end)[may_begin]
        ahead = (behind[-1] - (behind - rows))[may_begin]
        before = self._waiting.pop(run.previous, None)
        if before is not None:
            numbers = np.concatenate([before[0], numbers])
            ahead = np.concatenate([before[1] + behind[-1], ahead])
        is_whole = ahead >= self.length
        whole = numbers[is_whole]
        whole = whole[whole >= self._ring.tail]
        self._ring.columns["is_start"][whole % self._ring.size] = True
        self.count += len(whole)
        self._waiting[run.end - 1] = numbers[~is_whole], ahead[~is_whole]

    def free_until(self, oldest: int) -> None:
        if oldest <= self._ring.tail:
            return
        gone = np.arange(self._ring.tail, oldest)
        self.count -= int(np.count_nonzero(self._ring.take("is_start", gone)))
        self._ring.free_until(oldest)
        for last in [last for last in self._waiting if last < oldest]:
            del self._waiting[last]

    def are_starts(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of these living steps [n] begin a whole sequence."""
        return self._ring.take("is_start", numbers)

    def sample(self, number: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """That many of the starts, uniformly, with replacement; raises `ValueError` if there is none."""
        if not self.count:
            raise ValueError("no sequence can begin anywhere")
        found = np.empty(0, np.int64)
        for _ in range(_MAX_TRIES):
            tried = sample_uniform(rng, self._ring.tail, self._ring.head, 2 * number)
            found = np.concatenate([found, tried[self._ring.take("is_start", tried)]])
            if len(found) >= number:
                return found[:number]
        alive = np.arange(self._ring.tail, self._ring.head)
        return rng.choice(alive[self._ring.take("is_start", alive)], number)
