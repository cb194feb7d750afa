"""Rounds of `benchmarks.arms`, and the figures that follow from them."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.baselines.rlx_arms import Act
from surreal.distributed import RedisClient
from surreal.replay.archive import ReplayArchive, export_replay

BROADCAST_S = 0.5  #: between two broadcasts


class Round(NamedTuple):
    """The arms' actions in one round."""

    case: str
    seconds: float
    others: list[Act]
    last: list[Act]  #: of the arm that may misbehave


def stored_steps(client: RedisClient) -> set[tuple[int, int]]:
    """Return the arm and the number of each step in the replay."""
    found = set[tuple[int, int]]()
    with tempfile.TemporaryDirectory() as folder:
        export_replay(client, Path(folder) / "steps")
        for chunk in ReplayArchive(Path(folder) / "steps").chunks():
            rows = np.cumsum(chunk.segments[:, 0])[:-1] - 1  # the last of each segment is what its last step led to
            images = np.delete(chunk.leaves[0][:-1], rows, axis=0)
            numbers = np.ascontiguousarray(images.reshape(len(images), -1)[:, :8]).view("<u4")
            found |= set(map(tuple, numbers.tolist()))
    return found


def acknowledged_steps(rounds: Sequence[Round]) -> set[tuple[int, int]]:
    """Return the steps whose outcome a server took: of each answered request with one, the image before."""
    return {(act.arm, act.step - 1) for each in rounds for act in (*each.others, *each.last) if act.has_outcome}


def ages_ms(acts: Sequence[Act], broadcasts: Sequence[tuple[int, float]]) -> tuple[list[float], list[float]]:
    """Return (outdated_ms, new_ms) of each broadcast and arm, see `benchmarks.arms`."""
    outdated, new, by_arm = list[float](), list[float](), defaultdict[int, list[Act]](list)
    for act in acts:
        by_arm[act.arm].append(act)
    for arm in by_arm.values():
        arm.sort(key=lambda act: act.answered_s)
        for version, at_s in broadcasts:
            if not arm[0].answered_s <= at_s <= arm[-1].answered_s - BROADCAST_S:
                continue
            after = [act for act in arm if act.answered_s > at_s]
            outdated.append(1e3 * max((act.answered_s - at_s for act in after if act.version < version), default=0.0))
            new.append(1e3 * min((act.answered_s - at_s for act in after if act.version >= version), default=np.inf))
    return outdated, new


def summarize(case: str, rounds: Sequence[Round], broadcasts: Sequence[tuple[int, float]]) -> dict[str, Any]:
    """Return the figures of one case."""
    outdated, new = list[float](), list[float]()
    latencies, slowest = list[float](), list[float]()
    for each in rounds:
        for found, more in zip((outdated, new), ages_ms(each.others, broadcasts), strict=True):
            found += more
        latencies += [1e3 * (act.answered_s - act.sent_s) for act in each.others]
        counts = np.unique([act.arm for act in each.others], return_counts=True)[1]
        slowest.append(float(counts.min()) / each.seconds)
    figures = {"outdated_ms": outdated, "new_ms": new, "latency_ms": latencies}
    percentiles = {
        name: {f"p{share}": round(float(np.percentile(values, share)), 1) for share in (50, 99)}
        for name, values in figures.items()
        if values
    }
    rates = {"slowest_hz": round(float(np.median(slowest)), 2), "last_steps": sum(len(each.last) for each in rounds)}
    return {"name": f"arms, {case}", **percentiles, **rates, "broadcasts_and_arms": len(outdated)}
