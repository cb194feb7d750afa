"""Cause the same faults in Surreal and in other systems, and write benchmarks/kill_test/results.jsonl and a table.

    python -m benchmarks.kill_test                                  all systems and faults, on CartPole
    python -m benchmarks.kill_test surreal rllib --faults learner   some of them
    python -m benchmarks.kill_test surreal --tasks frames           a replay of 84 x 84 frames
    python -m benchmarks.kill_test sb3 --faults cut --seed 2        one row, with another seed
    python -m benchmarks.kill_test --write                          only the table in docs/reliability.md

Each row is a separate run. It trains DQN (Sample Factory: APPO) with two workers until it has been learning for a
while, suffers one fault, and is watched until all processes are back and env steps and updates grow. A system that does
not come back within two minutes is started again, as a person would, with the files that it left.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.alone import alone
from benchmarks.kill_test.faults import FAULTS, HOLD_S, Fault, NotApplicableError
from benchmarks.kill_test.link import Link
from benchmarks.kill_test.running import Counts, Running
from benchmarks.kill_test.subjects import SUBJECTS, Subject
from benchmarks.kill_test.table import RECORDS, START_LIMIT_S, command, write_table
from benchmarks.peers import find_python, skip

#: Learning before the fault, s; every system writes a checkpoint each 10 s.
_SETTLE_S = 25.0
#: How long a system may take to come back by itself, s.
_RETURN_LIMIT_S = 120.0
#: Learning after it came back, before its counts are read, s.
_AFTER_S = 10.0
#: Looks at the counts, a tenth of a second apart, whose median is compared.
_LOOKS = 30
#: Growth that shows that a system works again.
_STEPS, _UPDATES = 200, 20
#: Size of the disk that each run has for itself.
_DISK = "1g"
#: Versions that a record has; the system's own settings are in `programs`.
_DISTRIBUTIONS = ("torch", "gymnasium", "numpy", "redis")
_VERSIONS = """
import json, platform
from importlib.metadata import PackageNotFoundError, version
found = {"python": platform.python_version()}
for name in %r:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def main(argv: Sequence[str]) -> int:
    """Run what is asked for, and write the table; return 1 if a system could not be started."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subjects", nargs="*", choices=[*SUBJECTS, []], help="systems; default: all")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--tasks", nargs="+", choices=["cartpole", "frames"], default=["cartpole"])
    parser.add_argument("--seed", type=int, default=1, help="seed of the system and its environments")
    parser.add_argument("--python", type=Path, help="interpreter with the system's package; default: one under .cache")
    parser.add_argument("--write", action="store_true", help="only write the table")
    asked = parser.parse_args(argv)
    has_failed = False
    for name in () if asked.write else asked.subjects or SUBJECTS:
        python = None if SUBJECTS[name].needs is None else find_python(SUBJECTS[name].needs, asked.python)
        if isinstance(python, str):
            skip(name, python)
            continue
        for task in asked.tasks:
            for fault in asked.faults:
                record = {"subject": name, "task": task, "fault": fault, "seed": asked.seed}
                record |= _circumstances(SUBJECTS[name], python)
                record |= {"command": command(record)}
                record |= measure(SUBJECTS[name], python, task, FAULTS[fault], asked.seed)
                has_failed |= "error" in record
                sys.stdout.write(json.dumps(record) + "\n")
                sys.stdout.flush()
                with RECORDS.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
    write_table()
    return int(has_failed)


def measure(subject: Subject, python: Path | None, task: str, fault: Fault, seed: int = 1) -> dict[str, Any]:
    """Run a system, cause the fault, and return the result."""
    if fault is FAULTS["cut"] and subject.no_link is not None:
        return {"not_applicable": subject.no_link}
    with _disk() as folder, _link(fault) as link:
        running = Running(subject.command(python, folder, task), folder, subject.is_restarted, seed, link)
        try:
            running.start()
            if running.wait_for(_is_learning, START_LIMIT_S) is None:
                return {"error": _last_line(running)}
            running.wait_for(lambda _: False, _SETTLE_S)
            return _suffer(running, fault)
        finally:
            running.kill_all()


def _suffer(running: Running, fault: Fault) -> dict[str, Any]:
    before, lag = running.count(), _lag(running)
    workers, stores = len(running.role("worker")), len(running.role("store"))
    restarts = running.restarts
    try:
        fault.strike(running)
    except NotApplicableError as reason:
        return {"not_applicable": str(reason)}
    waited = _return(running, workers, stores, _RETURN_LIMIT_S)
    is_by_itself = waited is not None
    if not is_by_itself:
        running.kill_all()
        running.start()
        waited = _return(running, workers, stores, START_LIMIT_S)
        if waited is None:
            return {"by_itself": False, "error": _last_line(running)}
    returned = running.count()
    running.wait_for(lambda _: False, _AFTER_S)
    after, lag_after = running.count(), _lag(running)
    gone = [_difference(*each) for each in zip(lag, lag_after, strict=True)]
    return {
        "by_itself": is_by_itself,
        "restarted_by_loop": running.restarts > restarts,
        "seconds": {key: None if value is None else round(value, 1) for key, value in (waited or {}).items()},
        "steps": {"before": before.counted, "lost": max(0, gone[0]), "doubled": max(0, -gone[0])},
        "updates": {"before": before.learned, "lost": max(0, gone[1]), "doubled": max(0, -gone[1])},
        "stored": {"before": before.stored, "after": returned.stored},
        "return": _mean_return(returned, after),
    }


def _return(running: Running, workers: int, stores: int, limit_s: float) -> dict[str, float | None] | None:
    """Wait until all processes are back, and env steps and updates grow; return the seconds of each, or None."""
    began_s, at_first = time.monotonic(), running.count()
    seconds: dict[str, float | None] = {"steps": None, "updates": None, "all": None}
    base: Counts | None = None

    def is_back(counts: Counts) -> bool:
        nonlocal base
        now_s = time.monotonic() - began_s
        for key, growth in (("steps", counts.steps - at_first.steps), ("updates", counts.updates - at_first.updates)):
            if seconds[key] is None and growth > 0:
                seconds[key] = now_s
        is_whole = len(running.role("worker")) >= workers and len(running.role("store")) >= stores
        if not is_whole or counts.counted is None:
            base = None
            return False
        base = base or counts
        return counts.steps >= base.steps + _STEPS and counts.updates >= base.updates + _UPDATES

    seconds["all"] = running.wait_for(is_back, limit_s)
    return None if seconds["all"] is None else seconds


def _is_learning(counts: Counts) -> bool:
    return counts.updates > _UPDATES and bool(counts.counted)


def _lag(running: Running) -> tuple[list[int], list[int]]:
    """Return what was done but is not counted by the trainer, env steps and updates, at some looks."""
    looks: list[Counts] = []
    for _ in range(_LOOKS):
        running.wait_for(lambda _: True, 1.0)
        looks.append(running.count())
        time.sleep(0.1)
    steps = [look.steps - look.counted for look in looks if look.counted is not None]
    return steps, [look.updates - look.learned for look in looks if look.learned is not None]


def _difference(before: Sequence[int], after: Sequence[int]) -> int:
    """Return how much more is not counted afterwards; 0 if it is within what the looks differ by anyway."""
    if not before or not after:
        return 0
    found = round(statistics.median(after) - statistics.median(before))
    noise = max(max(looks) - min(looks) for looks in (before, after))
    return found if abs(found) > noise else 0


def _mean_return(since: Counts, until: Counts) -> float | None:
    episodes = until.episodes - since.episodes
    return round((until.returns - since.returns) / episodes, 1) if episodes else None


def _last_line(running: Running) -> str:
    log = running.folder.parent / f"{running.folder.name}.log"
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "it printed nothing"


def _circumstances(subject: Subject, python: Path | None) -> dict[str, Any]:
    """Return versions, settings and the load of the machine."""
    asked = _VERSIONS % ((subject.package, *_DISTRIBUTIONS),)
    printed = subprocess.run([str(python or sys.executable), "-c", asked], capture_output=True, text=True, check=True)
    versions = json.loads(printed.stdout)
    if subject.has_store and (server := shutil.which("redis-server")) is not None and subject.package != "ray":
        printed = subprocess.run([server, "--version"], capture_output=True, text=True, check=True)
        versions["redis-server"] = printed.stdout.split("v=")[1].split()[0]
    settings = {"settle_s": _SETTLE_S, "hold_s": HOLD_S, "return_limit_s": _RETURN_LIMIT_S, "after_s": _AFTER_S}
    return {
        "version": versions.pop(subject.package),
        "versions": versions,
        "settings": settings | {"disk": _DISK},
        "machine": {"cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)},
    }


@contextmanager
def _link(fault: Fault) -> Iterator[Link | None]:
    """Start a link, if it is to be cut."""
    if fault is not FAULTS["cut"]:
        yield None
        return
    link = Link()
    link.start()
    try:
        yield link
    finally:
        link.stop()


@contextmanager
def _disk() -> Iterator[Path]:
    """Make a small disk in memory, which can be filled; without the right to mount it, a folder."""
    place = Path(tempfile.mkdtemp(prefix="kill-test-"))
    folder = place / "disk"
    folder.mkdir()
    is_mounted = not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(folder)], capture_output=True, check=False
    ).returncode
    try:
        yield folder
    finally:
        if is_mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    with alone():
        sys.exit(main(sys.argv[1:]))
