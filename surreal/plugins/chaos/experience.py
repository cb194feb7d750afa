"""`ShardLedger`: bookkeeping of one shard, whose senders' numbers, stream and counts must agree.

A sender numbers its chunks 1, 2, 3, ... and repeats one until it is acknowledged. So in a stream whose Redis keeps its
data, each number comes once, in order. The chunks' own steps add up to the count of env steps. In each environment, a
chunk continues at the step where the previous one ended, or with a new episode.

If Redis is emptied, its chunks are gone by definition, and chunks in flight are sent again, perhaps twice. Both are
counted, and are not violations.
"""

from __future__ import annotations

from dataclasses import dataclass

from surreal.plugins.chaos.observing import Entry, ShardSight
from surreal.plugins.chaos.verdicts import Complaints


@dataclass
class ShardLedger:
    """One shard, look by look; what it counts is over all epochs."""

    shard: int = 0
    is_new: bool = True  #: whether the run began while it is watched; earlier history is not checked
    is_gapless: bool = True  #: whether senders leave no number out: none drops chunks, or moves them to other shards
    has_lanes: bool = True  #: whether all steps of an environment are recorded, so that chunks must follow each other
    counts_chunks: bool = True  #: whether all env steps come in chunks; gradients are counted without

    def __post_init__(self) -> None:
        self.lost, self.doubled, self.inexact = Complaints(), Complaints(), Complaints()
        self.looks = 0  # at a shard that has an epoch
        self.counted = 0  # env steps by which the counter grew
        self.chunks = self.steps = 0  # seen
        self.unseen_chunks = self.unseen_steps = 0  # evicted before they could be looked at, as Redis counted them
        self.repeated = 0  # chunks that came again after Redis was emptied
        self.rolled_back = 0  # chunks that a restarted Redis had lost: its append-only file may lose the last second
        # For each time that Redis was emptied: the env steps that it had counted, and those that the owner brought back
        self.carried: list[tuple[int, int | None]] = []
        self._where = f"shard {self.shard}: " if self.shard else ""
        self._epoch = ""
        self._may_be_emptied = self._may_roll_back = False
        self._base_chunks = self._base_steps = 0
        self._is_counted = False
        self._epoch_chunks = self._epoch_steps = 0  # of this epoch: seen, and evicted before they were
        self._total = 0  # env steps that Redis counted last
        self._highest: dict[str, int] = {}
        self._before: dict[str, int] = {}  # the highest number of each sender in earlier epochs
        self._lanes: dict[tuple[str, int], int] = {}
        self._missing = 0

    @property
    def growth(self) -> int:
        """Env steps that were appended; only grows."""
        return self.steps + self.unseen_steps

    def expect_emptying(self) -> None:
        """Redis is emptied now."""
        self._may_be_emptied = True

    def expect_rollback(self) -> None:
        """Redis dies now, and its append-only file may lack the last second."""
        self._may_roll_back = True

    def look(self, sight: ShardSight) -> None:
        """Compare one sight with all before it."""
        if not sight.epoch:
            return
        self.looks += 1
        if sight.epoch != self._epoch:
            self._enter(sight)
        else:
            # Where the end may have been lost, as much may have come again already.
            held = sight.chunks - (len(sight.entries) if self._may_roll_back else 0)
            if (gone := self._base_chunks + self._epoch_chunks - held) > 0:
                self._go_back(sight, gone)
        self._may_roll_back = False
        for entry in sight.entries:
            self._note(entry)
        self._compare(sight)

    def _enter(self, sight: ShardSight) -> None:
        is_first = not self._epoch
        self._base_chunks = self._base_steps = 0
        if is_first and not self.is_new:
            self._base_chunks = sight.chunks - len(sight.entries)
            self._base_steps = sight.steps - sum(entry.own_steps for entry in sight.entries)
        elif not is_first:
            if not self._may_be_emptied:
                self.lost.add(
                    f"{self._where}Redis has another epoch ({sight.epoch} after {self._epoch}), though no process "
                    f"emptied it: {self._epoch_chunks} chunks are gone"
                )
            self.carried.append((self._total, None))
        self._total = self._base_steps
        self._is_counted = sight.is_counted and is_first and not self.is_new
        self._epoch, self._may_be_emptied = sight.epoch, False
        self._epoch_chunks = self._epoch_steps = 0
        self._forget_numbers()

    def _forget_numbers(self) -> None:
        for sender, number in self._highest.items():
            self._before[sender] = max(number, self._before.get(sender, 0))
        self._highest = {}

    def _go_back(self, sight: ShardSight, gone: int) -> None:
        """Account for chunks that Redis has forgotten: it counts fewer than before."""
        if self._may_roll_back:
            self.rolled_back += gone
        else:
            self.lost.add(f"{self._where}{gone} chunks that were acknowledged are gone, and the epoch is the same")
        self._epoch_chunks = sight.chunks - self._base_chunks - len(sight.entries)
        self._epoch_steps = sight.steps - self._base_steps - sum(entry.own_steps for entry in sight.entries)
        self._total = self._base_steps + self._epoch_steps
        self._forget_numbers()

    def _note(self, entry: Entry) -> None:
        self.chunks += 1
        self.steps += entry.own_steps
        self._epoch_chunks += 1
        self._epoch_steps += entry.own_steps
        before = self._before.get(entry.sender)
        highest = self._highest.get(entry.sender, before)
        is_known = highest is not None
        if entry.sender in self._highest and entry.sequence <= self._highest[entry.sender]:
            self.doubled.add(f"{self._where}chunk {entry.chunk_id} came again")
            return
        if before is not None and entry.sequence <= before:
            self.repeated += 1
        gap = entry.sequence - (highest or 0) - 1 if is_known or self.is_new else 0
        if gap > 0:
            self._missing += gap
        self._highest[entry.sender] = entry.sequence
        if self.has_lanes:
            self._follow_lanes(entry, is_known=is_known and gap <= 0)

    def _follow_lanes(self, entry: Entry, *, is_known: bool) -> None:
        for slot, first, own in entry.segments:
            expected = self._lanes.get((entry.sender, slot))
            if is_known and expected is not None and first not in (0, expected) and not self.repeated:
                found = self.doubled if first < expected else self.lost
                found.add(
                    f"{self._where}environment {slot} of sender {entry.sender} continues at step {first} of its "
                    f"episode in chunk {entry.sequence}, where step {expected} was next"
                )
            self._lanes[entry.sender, slot] = first + own

    def _compare(self, sight: ShardSight) -> None:
        unseen = sight.chunks - self._base_chunks - self._epoch_chunks
        if sight.is_counted and not self._is_counted:
            self._take_over(sight, is_blurred=unseen > 0 or not self.counts_chunks)
        if unseen > 0:
            self.unseen_chunks += unseen
            self._epoch_chunks += unseen
        elif unseen < 0:
            self.inexact.add(f"{self._where}the stream holds {-unseen} chunks that were never counted")
            self._base_chunks += unseen
        more = sight.steps - self._base_steps - self._epoch_steps
        if more and (unseen > 0 or not self.counts_chunks) and more > 0:
            self.unseen_steps += more
            self._epoch_steps += more
        elif more:
            counted, held = sight.steps - self._base_steps, self._epoch_steps
            self.inexact.add(f"{self._where}the global step counts {counted} env steps where the chunks hold {held}")
            self._base_steps += more
        if self.is_gapless and self._missing > self.unseen_chunks:
            gone = self._missing - self.unseen_chunks
            self.lost.add(f"{self._where}{gone} chunks are missing between others of the same sender")
            self._missing = self.unseen_chunks
        self.counted += sight.steps - self._total
        self._total = sight.steps

    def _take_over(self, sight: ShardSight, *, is_blurred: bool) -> None:
        """Account for the env steps that the owner has added from before Redis was emptied, or from a checkpoint.

        If the snapshot is blurred, it may also have steps of chunks that were not seen.
        """
        self._is_counted = True
        brought = sight.steps - self._epoch_steps
        if is_blurred and self.carried:
            brought = min(brought, self.carried[-1][0])
        self._total += brought - self._base_steps
        self._base_steps = brought
        if self.carried:
            before = self.carried[-1][0]
            self.carried[-1] = (before, brought)
            if brought > before:
                self.inexact.add(f"{self._where}{brought} env steps were brought back, of {before} that were counted")
        elif brought < 0:
            self.inexact.add(f"{self._where}{-brought} env steps of chunks were not counted")
