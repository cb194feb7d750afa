"""`Audit`: reads a run several times a second, and checks the invariants; processes and keys that must be gone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import psutil
from redis.client import Pipeline
from redis.exceptions import RedisError

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import RUNS, run_pattern
from surreal.distributed.experience.stream import Stream
from surreal.plugins.chaos.experience import ShardLedger
from surreal.plugins.chaos.observing import Life, Reader, Standing, read_lives
from surreal.plugins.chaos.subject import Subject
from surreal.plugins.chaos.verdicts import DOUBLED, LOST, Acknowledgements, Complaints, Verdict, Versions

logger = logging.getLogger(__name__)

_HEARTBEATS_INTERVAL_S = 0.5
#: Time until the chunks acknowledged before a run was joined are known: heartbeats are about a second old, s.
_SETTLING_S = 3.0


class Audit:
    """Follows one run; never waits for a Redis that is away."""

    def __init__(self, subject: Subject, clock: Callable[[], float] = time.monotonic) -> None:
        config = subject.config
        self._subject, self._clock = subject, clock
        streams = subject.replay.streams()
        self._reader = Reader(streams, subject.parameter_client, subject.policies(), is_new=subject.is_new)
        is_whole = not config.rlx.servers and len(streams) == 1  # no sender drops a chunk, or sends it elsewhere
        self._ledgers = {
            stream.shard: ShardLedger(
                stream.shard,
                is_new=subject.is_new,
                is_gapless=is_whole,
                has_lanes=is_whole,
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
        self.processes = ProcessBook()  #: all processes that were seen

    @property
    def standing(self) -> Standing:
        growth = sum(ledger.growth for ledger in self._ledgers.values())
        return Standing(growth, self._versions.publications, self._lives)

    @property
    def was_emptied(self) -> bool:
        has_carried = any(ledger.carried for ledger in self._ledgers.values())
        return has_carried or len(self._versions.epochs) > self._num_policies

    def look(self) -> bool:
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
        for shard in self._shards_of.get(id(client), ()):
            self._ledgers[shard].expect_emptying()

    def expect_rollback(self, client: RedisClient) -> None:
        """Expect that a server may now lose the last chunks that it acknowledged."""
        for shard in self._shards_of.get(id(client), ()):
            self._ledgers[shard].expect_rollback()

    def expect_failover(self, client: RedisClient, replica: RedisClient) -> None:
        """Expect that a replica takes the place of a server now, with what it has.

        Raises:
            redis.RedisError: no answer.
        """
        self._reader.rewind(client, replica)
        self.expect_rollback(client)
        self._versions.expect_rollback()

    def verdicts(self) -> list[Verdict]:
        ledgers = list(self._ledgers.values())
        names = ("chunks", "steps", "counted", "looks", "unseen_chunks", "rolled_back", "repeated")
        totals = (sum(getattr(ledger, name) for ledger in ledgers) for name in names)
        chunks, steps, counted, looks, unseen, rolled_back, repeated = totals
        held = f"{chunks:,} chunks of {steps:,} env steps"
        told = self._acknowledged
        lives, told_chunks, told_steps = told.counts()
        seen = f"{held} were seen in the streams" + (f", {unseen:,} chunks were gone before" if unseen else "")
        heard = f"{lives} lives of agents were told that {told_chunks:,} chunks of {told_steps:,} are stored"
        dropped = f"; they dropped {told.dropped_chunks:,} chunks themselves" if told.dropped_chunks else ""
        lost = (*told.lost.all(), *(text for ledger in ledgers for text in ledger.lost.all()))
        doubled = tuple(text for ledger in ledgers for text in ledger.doubled.all())
        inexact = tuple(text for ledger in ledgers for text in ledger.inexact.all())
        emptied = [carried for ledger in ledgers for carried in ledger.carried]
        losses = [f"Redis was emptied {len(emptied)} times: what it held is gone, as it must be"] if emptied else []
        if rolled_back:
            losses.append(
                f"Redis lost its last {rolled_back} chunks: its append-only file or its replica did not have them"
            )
        repeats = [f"{repeated} chunks were sent again, since Redis had forgotten that it had them"] if repeated else []
        recounts = tuple(
            f"emptied at {before:,} env steps: the owner of the replay brought {brought or 0:,} of them back"
            for before, brought in emptied
        )
        versions = self._versions
        kept, once = f"{heard}; {seen}{dropped}", f"each number of a sender came once: {held}"
        exact = f"Redis counted {counted:,} env steps where it got {held}; compared at {looks:,} looks"
        if self._subject.config.has_parameter_servers:
            kept = once = "not looked at: agents send gradients, and no experience"
            exact = f"the count of env steps only rose, by {counted:,}; compared at {looks:,} looks"
        return [
            Verdict(LOST, kept, lost, tuple(losses)),
            Verdict(DOUBLED, once, doubled, tuple(repeats)),
            Verdict("the global step is exact", exact, inexact, recounts),
            Verdict(
                "versions rise",
                f"{versions.publications:,} publications up to version {versions.newest:,}, of {len(versions.epochs)} "
                f"epoch{'s' * (len(versions.epochs) != 1)}; the versions that {versions.lives} lives of processes held",
                versions.broken.all(),
                versions.not_promised(),
            ),
        ]


_POLL_INTERVAL_S = 0.1


class ProcessBook:
    """Every process of a run that was seen, with its descendants."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, float], psutil.Process] = {}

    def __len__(self) -> int:
        return len(self._known)

    def note(self, process: psutil.Process) -> None:
        with suppress(psutil.Error):
            for each in (process, *process.children(recursive=True)):
                with suppress(psutil.Error):
                    self._known[each.pid, each.create_time()] = each

    def note_lives(self, lives: Iterable[Life]) -> None:
        known = {pid for pid, _ in self._known}
        for life in lives:
            if life.is_here and life.is_alive and life.pid not in known:
                with suppress(psutil.Error):
                    self.note(psutil.Process(life.pid))

    def alive(self) -> list[psutil.Process]:
        found = []
        for process in self._known.values():
            with suppress(psutil.Error):
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def judge(self, *, spared: Iterable[int] = (), within_s: float) -> Verdict:
        """Wait at most `within_s` until all of them have ended, except the process ids in `spared`."""
        kept, deadline_s = set(spared), time.monotonic() + within_s
        while (left := [each for each in self.alive() if each.pid not in kept]) and time.monotonic() < deadline_s:
            time.sleep(_POLL_INTERVAL_S)
        ended = len(self._known) - len(left) - len(kept)
        return Verdict(
            "no process is left behind",
            f"{len(self._known)} processes were seen, {max(ended, 0)} of them have ended"
            + (f", {len(kept)} continue with the run" if kept else ""),
            tuple(f"process {each.pid} still runs: {_command(each)}" for each in left),
        )


def judge_keys(clients: Sequence[RedisClient]) -> Verdict:
    """Look for keys of a run that has ended."""
    left = [key.decode() for client in clients for pattern in run_pattern(client.run) for key in client.scan(pattern)]
    complaints = Complaints()
    complaints.extend(f"{key} is left" for key in left)
    for client in clients:
        with client.directory() as directory:
            if directory.hexists(RUNS, client.run):
                complaints.add(f"{RUNS} at {client.address} lists the run")
    return Verdict("no key is left behind", f"{len(left)} keys of the run in Redis", complaints.all())


def judge_blocks(streams: Sequence[Stream]) -> Verdict:
    """Look for blocks without a stream entry, and entries without a block, of a run in progress."""
    blocks, stray, dangling = (sum(column) for column in zip((0, 0, 0), *map(_compare_blocks, streams), strict=True))
    complaints = [f"{stray} blocks are in no stream: no process will remove them"] if stray else []
    complaints += [f"{dangling} chunks of the streams have no block"] if dangling else []
    return Verdict("no key is left behind", f"{blocks} blocks, each in its stream", tuple(complaints))


def _compare_blocks(stream: Stream) -> tuple[int, int, int]:
    """Count the blocks of a shard, those without an entry, and the entries without a block; chunks come and go."""
    client, keys = stream.client, stream.keys

    def entries() -> set[str]:
        found: Any = client.redis.xrange(keys.stream)
        return {fields[b"id"].decode() for _, fields in found if b"id" in fields}

    def has_block(chunk_id: str) -> bool:
        return bool(client.execute("EXISTS", keys.block(chunk_id)))

    before = entries()
    found = {key.decode().removeprefix(keys.block_prefix) for key in client.scan(f"{keys.block_prefix}*")}
    after = entries()
    # An evicted chunk loses both at one instant, so a mismatch that is still there is real.
    stray = sum(has_block(each) and each not in entries() for each in found - before - after)
    dangling = sum(not has_block(each) and each in entries() for each in (before & after) - found)
    return len(found), stray, dangling


def _command(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())[:120]
    return "unknown"
