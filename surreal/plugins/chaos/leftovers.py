"""Leftovers that a run must not have: processes without a parent, and keys that no process reads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import psutil

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import RUNS, run_pattern
from surreal.distributed.experience.stream import Stream
from surreal.plugins.chaos.invariants.verdict import Complaints, Verdict
from surreal.plugins.chaos.observing import Life

_POLL_INTERVAL_S = 0.1


class ProcessBook:
    """Every process of a run that was seen, with its descendants."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, float], psutil.Process] = {}

    def __len__(self) -> int:
        return len(self._known)

    def note(self, process: psutil.Process) -> None:
        """Record a process and its current descendants."""
        with suppress(psutil.Error):
            for each in (process, *process.children(recursive=True)):
                with suppress(psutil.Error):
                    self._known[each.pid, each.create_time()] = each

    def note_lives(self, lives: Iterable[Life]) -> None:
        """Record the living processes on this machine."""
        known = {pid for pid, _ in self._known}
        for life in lives:
            if life.is_here and life.is_alive and life.pid not in known:
                with suppress(psutil.Error):
                    self.note(psutil.Process(life.pid))

    def alive(self) -> list[psutil.Process]:
        """List the processes that still run."""
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


def judge_blocks(streams: Sequence[Stream], more: str = "") -> Verdict:
    """Look for blocks without a stream entry, and entries without a block, of a run in progress."""
    blocks, stray, dangling = (sum(column) for column in zip((0, 0, 0), *map(_compare_blocks, streams), strict=True))
    complaints = [f"{stray} blocks are in no stream: no process will remove them"] if stray else []
    complaints += [f"{dangling} chunks of the streams have no block"] if dangling else []
    return Verdict("no key is left behind", f"{blocks} blocks, each in its stream{more}", tuple(complaints))


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
