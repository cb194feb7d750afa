"""How many runs of a sweep fit on this machine at once, by their processes and the memory that they may come to use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil

from surreal.base.system.process import count_cores
from surreal.config import Config
from surreal.run.process.roles import EVAL, ROLES

#: What a process of a run takes beside experience, bytes: torch, the model, environments of the usual size.
_PROCESS_BYTES = 256 << 20
#: Share of the free memory that is given away: what else runs here needs some as well.
_MEMORY_SHARE = 0.9
_CGROUP = Path("/sys/fs/cgroup")


class Room(NamedTuple):
    """What a run needs, or a machine has."""

    cores: int
    bytes: int


def need_of(config: Config) -> Room:
    """What a run may come to need: a core for each process that computes all the time, and its experience twice.

    The experience is in Redis, and mirrored in the learner.
    """
    processes = sum(role.count(config) for role in ROLES)
    ranks = config.learner.ranks - 1
    busy = processes - EVAL.count(config) + ranks
    experience = config.learner.gradients_max_bytes if config.has_parameter_servers else config.replay.max_bytes
    return Room(max(1, busy), 2 * experience + (processes + ranks + 1) * _PROCESS_BYTES)


def room_here() -> Room:
    """What this machine, or container, has free now."""
    free = min([psutil.virtual_memory().available, *_free_in_container()])
    return Room(count_cores(), int(_MEMORY_SHARE * free))


def fits(need: Room, running: Sequence[Room], room: Room, parallel: int | None) -> bool:
    """Whether one more run fits beside those that run; a single one always does.

    Args:
        need: of the run.
        running: what the others were taken to need.
        room: of the machine, when none of them ran.
        parallel: how many there may be whatever they need; None: as many as have room.
    """
    if not running:
        return True
    if parallel is not None:
        return len(running) < parallel
    all_of_them = (need, *running)
    cores, size = sum(each.cores for each in all_of_them), sum(each.bytes for each in all_of_them)
    return cores <= room.cores and size <= room.bytes


def num_at_once(need: Room, room: Room, parallel: int | None) -> int:
    """How many runs of one need fit."""
    count = 1
    while count < (parallel or room.cores) and fits(need, [need] * count, room, parallel):
        count += 1
    return count


def _free_in_container() -> list[int]:
    try:
        limit, used = ((_CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return [max(0, int(limit) - int(used))]
    except (OSError, ValueError):  # no container, or no limit: "max"
        return []
