"""Measure how fast a replay is filled and sampled, compared with peers and floors in the same run.

    python -m benchmarks.replay [--sections floors torchrl sb3 cpprb rlox reverb] [--cases C ...] [--stored N ...]

Batches are taken from `batch_iterator()` in steady state, mirrored and remote, from one stream in Redis.

* floors: the floor of mirrored batches (also of compressed frames) is `numpy.take` of the same number of rows at random
  places of one array (obs and next obs). The floor of remote batches is a raw socket that pipelines prepared GETRANGE
  commands for the same number of rows in the same blocks, and ignores the replies. It is measured twice: with one
  GETRANGE per row (obs and next obs, each frame of a stack once), and as in Surreal, with one per range of adjacent
  rows.
* torchrl: mirrored against TorchRL's `LazyTensorStorage` (in its process's memory), with and without prefetching; also
  mirrored, remote and filling against its `StoreStorage` in the same Redis. Filling is measured with thousands of rows
  a call, and with 16 rows a call, as 16 environments produce them.
* sb3, cpprb, rlox: mirrored against the buffer of each library, in its process's memory; vectors only.
* reverb: mirrored, remote and inserting against Reverb's server and client.

One `ExpSender` fills Surreal's replay until all is in Redis. Observations are vectors, or stacks of four frames.
Surreal stores each frame once; the peers store stacks. Peers have separate processes and virtual environments
(`benchmarks.peers`). Networked peers get at most 10^5 transitions.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.alone import alone
from benchmarks.baselines.raw_client import RawClient
from benchmarks.harness import report
from benchmarks.peers import CPPRB, REVERB, RLOX, SB3, TORCHRL, Peer, find_python, rotate, skip
from benchmarks.replay_cases import CASES, ENVS, NETWORKED_MAX, Case, Filled, game_frames, timed
from surreal.base.system.process import keep_freed_memory
from surreal.distributed.server.embedded import EmbeddedRedis

_PREPARED = 16  # requests of the raw client, made before the timing
_PREFETCH = 4  # the peers' prefetched batches, as many as Surreal's


class RawRanges:
    """Prepared pipelines of GETRANGE, whose replies are received and ignored.

    Args:
        path: Path of the server's socket.
        blocks: Keys and lengths of the blocks.
        case: The number of rows. Those of a transition are adjacent: each frame of the stack, and the next observation.
        is_merged: Whether one command fetches all rows of a transition; otherwise, each row has one.
    """

    def __init__(self, path: str, blocks: list[tuple[bytes, int]], case: Case, *, is_merged: bool) -> None:
        self._raw = RawClient(path)
        rng, size, adjacent = np.random.default_rng(0), case.row_bytes, case.stack + 1
        self._requests: list[bytes] = []
        for _ in range(_PREPARED):
            commands = []
            for place in rng.integers(len(blocks), size=case.batch_size).tolist():
                key, length = blocks[place]
                first = int(rng.integers(length // size - adjacent + 1))
                for row, count in [(first, adjacent)] if is_merged else [(first + i, 1) for i in range(adjacent)]:
                    span = b"%d" % (row * size), b"%d" % ((row + count) * size - 1)
                    commands.append(RawClient.pack(b"GETRANGE", key, *span))
            self._requests.append(b"".join(commands))
        count = adjacent if is_merged else 1
        reply = len(b"$%d\r\n" % (count * size)) + count * size + 2
        self._buffer = bytearray(reply * case.batch_size * adjacent // count)
        self._number = 0

    def batch(self) -> None:
        self._raw.sock.sendall(self._requests[self._number % _PREPARED])
        self._number += 1
        view = memoryview(self._buffer)
        while view:
            view = view[self._raw.sock.recv_into(view) :]


def make_take(case: Case) -> Callable[[], None]:
    rng = np.random.default_rng(0)
    rows: NDArray[Any] = np.ones((case.stored, *case.shape), case.dtype)
    back = np.arange(case.stack - 1, -1, -1)

    def take() -> None:
        places = rng.integers(case.stack, case.stored - 1, case.batch_size)
        for first in (places, places + 1):
            rows.take(first[:, None] - back if case.stack > 1 else first, axis=0)

    return take


class Section:
    """One case's measurements: rates by name, and the reports of their ratios."""

    def __init__(self, name: str, case: Case, rounds: int, seconds: float) -> None:
        self._name, self._case, self._rounds, self._seconds = name, case, rounds, seconds

    def compare(
        self, measures: dict[str, Callable[[float], float]], pairs: Iterable[tuple[str, str, float | None]]
    ) -> None:
        """Measure all in turn, and report each ratio (Surreal's rate, the peer's rate, aim or None)."""
        rates = rotate({name: (lambda m=m: m(self._seconds)) for name, m in measures.items()}, self._rounds)
        for ours, theirs, aim in pairs:
            mb = round(float(np.median(rates[ours])) * self._case.drawn_bytes / self._case.batch_size / 1e6, 1)
            name = f"{ours} against {theirs}, {self._name}"
            more = {"MB/s": mb} if not ours.startswith("fill") else {}
            rounded = None if aim is None else round(aim, 3)
            report(name, "transitions/s", rates[ours], rates[theirs], aim=rounded, stored=self._case.stored, **more)


def floors(filled: Filled, section: Section, _: Peer | None) -> None:
    case, path, blocks = filled.case, filled.address.removeprefix("unix://"), filled.blocks()
    take = make_take(case)
    measures: dict[str, Callable[[float], float]] = {
        "mirrored": filled.mirrored,
        "numpy.take": lambda seconds: timed(take, case.batch_size, seconds),
        "remote": filled.remote,
    }
    for kind in ("rows", "ranges"):
        raw = RawRanges(path, blocks, case, is_merged=kind == "ranges")
        measures[f"raw GETRANGE of {kind}"] = lambda seconds, raw=raw: timed(raw.batch, case.batch_size, seconds)
    pairs: list[tuple[str, str, float | None]] = [("mirrored", "numpy.take", 1 / 1.5)]
    if case.stack > 1:
        measures["compressed"] = filled.compressed
        pairs.append(("compressed", "numpy.take", None))
    section.compare(measures, pairs + [("remote", f"raw GETRANGE of {kind}", 1 / 1.3) for kind in ("rows", "ranges")])


def torchrl(filled: Filled, section: Section, peer: Peer | None) -> None:
    if peer is None:
        return
    case, lazy, store = filled.case, "TorchRL LazyTensorStorage", "TorchRL StoreStorage"
    what: dict[str, Any] = {
        "size": case.stored,
        "shape": case.obs_shape,
        "dtype": np.dtype(case.dtype).name,
        "batch_size": case.batch_size,
        "socket": filled.address.removeprefix("unix://"),
    }
    peer.call("fill", storage="lazy", **what)
    measures: dict[str, Callable[[float], float]] = {"mirrored": filled.mirrored}
    for name, prefetch in ((lazy, 0), (f"{lazy}, prefetching", _PREFETCH)):
        measures[name] = lambda seconds, prefetch=prefetch: peer.call("sample", prefetch=prefetch, seconds=seconds)
    section.compare(measures, [("mirrored", name, 3.0 if _is_small(case) else 1.0) for name in list(measures)[1:]])
    peer.call("close")
    if case.stored > NETWORKED_MAX:
        return
    # TorchRL keeps each column in one value of Redis.
    filled.client.redis.config_set("proto-max-bulk-len", 16 << 30)
    peer.call("fill", storage="store", **what)
    largest = 4000 if case.stack == 1 else 256
    section.compare(
        {
            "mirrored": filled.mirrored,
            "remote": filled.remote,
            store: lambda seconds: peer.call("sample", prefetch=0, seconds=seconds),
            f"{store}, prefetching": lambda seconds: peer.call("sample", prefetch=_PREFETCH, seconds=seconds),
        },
        [
            (ours, theirs, aim)
            for ours, aim in (("mirrored", 50.0), ("remote", 4.0))
            for theirs in (store, f"{store}, prefetching")
        ],
    )
    section.compare(
        {
            "fill": lambda seconds: filled.fill(ENVS if case.stack > 1 else 256, seconds),
            f"{store}, {largest} a call": lambda seconds: peer.call("extend", rows=largest, seconds=seconds),
            "fill, 16 a call": lambda seconds: filled.fill(ENVS, seconds),
            f"{store}, 16 a call": lambda seconds: peer.call("extend", rows=ENVS, seconds=seconds),
        },
        [
            ("fill", f"{store}, {largest} a call", 100.0),
            ("fill, 16 a call", f"{store}, 16 a call", 100.0),
        ],
    )
    peer.call("close")


def buffer(library: str, name: str, aim: float | None, filled: Filled, section: Section, peer: Peer | None) -> None:
    case = filled.case
    if peer is None or case.stack > 1:
        return
    peer.call("fill", library=library, size=case.stored, width=case.shape[0], batch_size=case.batch_size)
    section.compare(
        {"mirrored": filled.mirrored, name: lambda seconds: peer.call("sample", seconds=seconds)},
        [("mirrored", name, aim if _is_small(case) else None)],
    )


def _is_small(case: Case) -> bool:
    """Whether calls take longer than what they copy."""
    return case.row_bytes <= 16


def reverb(filled: Filled, section: Section, peer: Peer | None) -> None:
    case = filled.case
    if peer is None or case.stored > NETWORKED_MAX:
        return
    dtype = np.dtype(case.dtype).name
    # Reverb compresses constant frames to almost nothing, and cannot compress noise, so it gets frames of a real game.
    frames = str(game_frames()) if case.stack > 1 else None
    peer.call(
        "fill", size=case.stored, shape=case.obs_shape, dtype=dtype, batch_size=case.batch_size, frames=frames
    )  # fmt: skip
    section.compare(
        {
            "mirrored": filled.mirrored,
            "remote": filled.remote,
            "Reverb": lambda seconds: peer.call("sample", seconds=seconds),
            "fill, 16 a call": lambda seconds: filled.fill(ENVS, seconds),
            "Reverb's insert": lambda seconds: peer.call("insert", seconds=seconds),
        },
        [
            ("mirrored", "Reverb", 20.0),
            ("remote", "Reverb", 8.0),
            ("fill, 16 a call", "Reverb's insert", 20.0),
        ],
    )
    peer.call("close")


SECTIONS: dict[str, tuple[Callable[[Filled, Section, Peer | None], None], Any]] = {
    "floors": (floors, None),
    "torchrl": (torchrl, (TORCHRL, "torchrl_peer.py")),
    "sb3": (partial(buffer, "sb3", "Stable-Baselines3", 3.0), (SB3, "buffers_peer.py")),
    "cpprb": (partial(buffer, "cpprb", "cpprb", 1.0), (CPPRB, "buffers_peer.py")),
    "rlox": (partial(buffer, "rlox", "rlox", None), (RLOX, "buffers_peer.py")),
    "reverb": (reverb, (REVERB, "reverb_peer.py")),
}


def start_peers(sections: list[str], pythons: dict[str, Path]) -> dict[str, Peer | None]:
    """Start a peer for each section that needs one; None if it is not available."""
    peers: dict[str, Peer | None] = {}
    for section in sections:
        needs = SECTIONS[section][1]
        if needs is None:
            continue
        found = find_python(needs[0], pythons.get(section))
        if isinstance(found, str):
            skip(section, found)
        peers[section] = None if isinstance(found, str) else Peer(needs[1], found)
    return peers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sections", nargs="+", choices=SECTIONS, default=["floors", "torchrl", "sb3", "cpprb", "rlox"]
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a round")
    parser.add_argument("--stored", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="transitions")
    parser.add_argument("--frames-max", type=int, default=100_000, help="transitions of frames at most")
    for name in (name for name, (_, needs) in SECTIONS.items() if needs is not None):
        parser.add_argument(f"--{name}-python", type=Path, help=f"an interpreter that has {name}")
    args = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as every process of a run does
    named = {name: getattr(args, f"{name}_python", None) for name in SECTIONS}
    peers = start_peers(args.sections, {name: path for name, path in named.items() if path is not None})
    for name in args.cases:
        for stored in args.stored:
            case = CASES[name]._replace(stored=stored)
            if case.stack > 1 and stored > args.frames_max:
                continue
            with EmbeddedRedis(maxmemory_bytes=case.redis_bytes) as server:
                filled = Filled(server.address, case)
                for section in args.sections:
                    SECTIONS[section][0](filled, Section(name, case, args.rounds, args.seconds), peers.get(section))
                filled.close()
    for peer in peers.values():
        if peer is not None:
            peer.close()


if __name__ == "__main__":
    with alone():
        main()
