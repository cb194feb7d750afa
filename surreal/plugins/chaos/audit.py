"""`Audit`: reads a run several times a second, and checks the invariants."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from redis.client import Pipeline
from redis.exceptions import RedisError

from surreal.distributed.connection.client import RedisClient
from surreal.plugins.chaos.invariants.experience import ShardLedger
from surreal.plugins.chaos.invariants.scores import Versions
from surreal.plugins.chaos.invariants.verdict import Acknowledgements, Verdict
from surreal.plugins.chaos.leftovers import ProcessBook
from surreal.plugins.chaos.observing import Life, Reader, Standing, read_lives
from surreal.plugins.chaos.subjects.subject import Subject

logger = logging.getLogger(__name__)

_HEARTBEATS_INTERVAL_S = 0.5
#: Time until the chunks acknowledged before a run was joined are known: heartbeats are about a second old, s.
_SETTLING_S = 3.0


class Audit:
    """Follows one run; never waits for a Redis that is away.

    Attributes:
        processes: all processes that were seen.
    """

    def __init__(self, subject: Subject, clock: Callable[[], float] = time.monotonic) -> None:
        config = subject.config
        self._subject, self._clock = subject, clock
        streams = subject.replay.streams()
        self._reader = Reader(streams, subject.parameter_client, subject.policies(), is_new=subject.is_new)
        drops = config.rlx.servers > 0
        self._ledgers = {
            stream.shard: ShardLedger(
                stream.shard,
                is_new=subject.is_new,
                is_gapless=not drops and len(streams) == 1,
                has_lanes=not drops and len(streams) == 1,
                counts_chunks=not config.has_parameter_servers,
            )
            for stream in streams
        }
        self._shards_of = {
            id(client): [stream.shard for stream in streams if stream.client is client]
            for client in self._reader.clients
        }
        self._acknowledged = Acknowledgements(is_new=subject.is_new)
        self._versions = Versions()
        self._num_policies = len(subject.policies())
        self._lives: tuple[Life, ...] = ()
        self._heard_s = -_HEARTBEATS_INTERVAL_S
        self._began_s: float | None = None
        self.processes = ProcessBook()

    @property
    def standing(self) -> Standing:
        """Progress of the run, by the last snapshots."""
        return Standing(
            sum(ledger.growth for ledger in self._ledgers.values()), self._versions.publications, self._lives
        )

    @property
    def was_emptied(self) -> bool:
        """Whether a Redis lost its data."""
        return (
            any(ledger.carried for ledger in self._ledgers.values()) or len(self._versions.epochs) > self._num_policies
        )

    def look(self) -> bool:
        """Read everything, and return whether all servers answered."""
        now = self._clock()
        self._began_s = now if self._began_s is None else self._began_s
        try:
            # Heartbeats first: the chunks that they call acknowledged must be in the streams when these are read.
            has_heard = now - self._heard_s >= _HEARTBEATS_INTERVAL_S
            if has_heard:
                self._lives = read_lives(self._subject.client)
                self._acknowledged.hear(self._lives)
                self.processes.note_lives(self._lives)
                self._heard_s = now
            for client in self._reader.clients:
                self.look_at(client)
            self._versions.look(self._reader.policies())
            if has_heard:
                self._versions.hear(self._lives)
        except RedisError as error:
            logger.debug("nothing was seen: %s", error)
            return False
        if now - self._began_s >= _SETTLING_S:
            self._acknowledged.settle()
        ledgers = self._ledgers.values()
        chunks = sum(ledger.chunks + ledger.unseen_chunks for ledger in ledgers)
        self._acknowledged.compare(chunks, sum(ledger.growth for ledger in ledgers))
        return True

    def look_at(self, client: RedisClient, and_then: Callable[[Pipeline], object] | None = None) -> None:
        """Read the shards of one server; `and_then` adds commands to the same transaction.

        Raises:
            redis.RedisError: no answer.
        """
        for sight in self._reader.shards(client, and_then):
            self._ledgers[sight.shard].look(sight)

    def expect_emptying(self, client: RedisClient) -> None:
        """Expect that a server now loses all its data."""
        for shard in self._shards_of.get(id(client), ()):
            self._ledgers[shard].expect_emptying()

    def expect_rollback(self, client: RedisClient) -> None:
        """Expect that a server may now lose the last chunks that it acknowledged."""
        for shard in self._shards_of.get(id(client), ()):
            self._ledgers[shard].expect_rollback()

    def verdicts(self) -> list[Verdict]:
        """Return the verdicts so far."""
        ledgers = list(self._ledgers.values())
        chunks, steps = (sum(getattr(ledger, name) for ledger in ledgers) for name in ("chunks", "steps"))
        held = f"{chunks:,} chunks of {steps:,} env steps"
        counted, looks = (sum(getattr(ledger, name) for ledger in ledgers) for name in ("counted", "looks"))
        unseen = sum(ledger.unseen_chunks for ledger in ledgers)
        told = self._acknowledged
        lives, told_chunks, told_steps = told.counts()
        seen = f"{held} were seen in the streams" + (f", {unseen:,} chunks were gone before" if unseen else "")
        heard = f"{lives} lives of agents were told that {told_chunks:,} chunks of {told_steps:,} are stored"
        dropped = f"; they dropped {told.dropped_chunks:,} chunks themselves" if told.dropped_chunks else ""
        lost = (*told.lost.all(), *(text for ledger in ledgers for text in ledger.lost.all()))
        doubled = tuple(text for ledger in ledgers for text in ledger.doubled.all())
        inexact = tuple(text for ledger in ledgers for text in ledger.inexact.all())
        losses, repeats, recounts = self._not_promised()
        versions = self._versions
        kept, once = f"{heard}; {seen}{dropped}", f"each number of a sender came once: {held}"
        exact = f"Redis counted {counted:,} env steps where it got {held}; compared at {looks:,} looks"
        if self._subject.config.has_parameter_servers:
            kept = once = "not looked at: agents send gradients, and no experience"
            exact = f"the count of env steps only rose, by {counted:,}; compared at {looks:,} looks"
        return [
            Verdict("nothing acknowledged is lost", kept, lost, losses),
            Verdict("nothing is doubled", once, doubled, repeats),
            Verdict("the global step is exact", exact, inexact, recounts),
            Verdict(
                "versions rise",
                f"{versions.publications:,} publications up to version {versions.newest:,}, of {len(versions.epochs)} "
                f"epoch{'s' * (len(versions.epochs) != 1)}; the versions that {versions.lives} lives of processes held",
                versions.broken.all(),
            ),
        ]

    def _not_promised(self) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Describe losses, repetitions and recounts without a promise."""
        ledgers = self._ledgers.values()
        emptied = [carried for ledger in ledgers for carried in ledger.carried]
        rolled_back, repeated = (sum(getattr(each, name) for each in ledgers) for name in ("rolled_back", "repeated"))
        losses = [f"Redis was emptied {len(emptied)} times: what it held is gone, as it must be"] if emptied else []
        if rolled_back:
            losses.append(f"Redis lost its last {rolled_back} chunks when it was killed: appendfsync is not always")
        repeats = f"{repeated} chunks were sent again, since Redis had forgotten that it had them"
        recounts = (
            f"emptied at {before:,} env steps: the owner of the replay brought {brought or 0:,} of them back"
            for before, brought in emptied
        )
        return tuple(losses), (repeats,) if repeated else (), tuple(recounts)
