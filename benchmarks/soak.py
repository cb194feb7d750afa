"""A soak test: a run at full speed, and what each of its processes takes as time passes.

    python -m benchmarks.soak [PRESET] [--minutes 60] [--append benchmarks/soak.csv]

Every few seconds it reads the resident set size (RSS), threads and open file descriptors of each process, the memory
that Redis uses, and the size of the run's folder with its append-only file. The first third is the warm-up: the replay
fills, and libraries load. Slopes are least-squares fits over the rest, per hour.
"""

from __future__ import annotations

import argparse
import csv
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from redis.exceptions import RedisError

from surreal import __version__
from surreal.base.errors import SurrealError
from surreal.plugins.chaos.observing import read_lives
from surreal.run.process.finding import find_run

_SETTINGS = ("run.stop_at_return=null", "run.max_env_steps=1000000000000", "redis.appendonly=true")
_WARM_UP = 1 / 3
_INTERVAL_S = 5.0
_MIB = 1 << 20

#: Time since the start, s, and value of a measure.
Series = dict[tuple[str, str], list[tuple[float, float]]]


class Slope(NamedTuple):
    """A measure of one process after the warm-up; a row of the table."""

    process: str
    measure: str
    first: float  #: mean of the first tenth
    last: float  #: mean of the last tenth
    most: float
    per_hour: float


def fit(series: Series, warm_up: float = _WARM_UP) -> list[Slope]:
    """Fit a line to each series after the warm-up; a process that lived shorter is left out.

    Args:
        series: samples by process and measure.
        warm_up: part of the time that does not count, 0 to 1.
    """
    end_s = max(time_s for samples in series.values() for time_s, _ in samples)
    found = []
    for (process, measure), samples in sorted(series.items()):
        times, values = np.array([each for each in samples if each[0] >= warm_up * end_s]).reshape(-1, 2).T
        if len(times) < 3 or samples[-1][0] < 0.9 * end_s or samples[0][0] > warm_up * end_s:
            continue
        tenth = max(1, len(times) // 10)
        per_hour = 3600 * float(np.polyfit(times - times[0], values, 1)[0])
        means = float(values[:tenth].mean()), float(values[-tenth:].mean())
        found.append(Slope(process, measure, *means, float(values.max()), per_hour))
    return found


def sample(run: psutil.Process, run_dir: Path) -> dict[tuple[str, str], float]:
    """Measure all processes of a run and its folder once.

    Raises:
        SurrealError, redis.RedisError: the run cannot be found, or its Redis does not answer.
    """
    with find_run(None, address=None, run_dir=run_dir) as client:
        names = {life.pid: life.name for life in read_lives(client) if life.is_alive}
        memory: Any = client.redis.info("memory")
        server: Any = client.redis.info("server")
    names[int(server["process_id"])] = "redis-server"
    found: dict[tuple[str, str], float] = defaultdict(float)
    for process in [run, *run.children(recursive=True)]:
        with suppress(psutil.Error):
            name = names.get(process.pid, "helpers")
            measures = process.memory_info().rss / _MIB, process.num_threads(), process.num_fds()
            for measure, value in zip(("RSS, MiB", "threads", "descriptors"), measures, strict=True):
                found[name, measure] += value
    found["redis-server", "data, MiB"] = memory["used_memory"] / _MIB
    for path in [run_dir, *run_dir.iterdir()]:
        name = "run folder" if path == run_dir else f"run folder/{path.name}"
        if path == run_dir or path.is_dir() or path.name.startswith("metrics.jsonl"):
            found[name, "disk, MiB"] = size_of(path) / _MIB
    return found


def size_of(path: Path) -> int:
    """Return the bytes of a file or of all files of a folder."""
    total = 0
    for each in [path, *path.rglob("*")]:
        with suppress(FileNotFoundError):
            total += each.stat().st_size if each.is_file() else 0
    return total


def soak(preset: str, minutes: float, settings: Sequence[str]) -> Series:
    """Run a preset for some minutes, and return what was measured."""
    series: Series = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        command = [sys.executable, "-m", "surreal", "run", preset, "--quiet", "--run-dir", str(run_dir)]
        command += [part for setting in (*_SETTINGS, *settings) for part in ("--set", setting)]
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        began_s = time.monotonic()
        try:
            while (now_s := time.monotonic() - began_s) < 60 * minutes and run.poll() is None:
                with suppress(SurrealError, RedisError):  # it has not begun
                    for key, value in sample(psutil.Process(run.pid), run_dir).items():
                        series[key].append((now_s, value))
                time.sleep(_INTERVAL_S)
            if run.poll() is not None:
                raise RuntimeError(f"the run ended after {now_s / 60:.1f} minutes with exit code {run.returncode}")
        finally:
            run.send_signal(signal.SIGINT)
            run.wait()
    return series


def table(slopes: Sequence[Slope]) -> str:
    """Return the slopes as a Markdown table."""
    lines = [
        "| process | measure | after warm-up | at the end | at most | slope per hour |",
        "|---|---|---|---|---|---|",
    ]
    for each in slopes:
        numbers = f"{each.first:.1f} | {each.last:.1f} | {each.most:.1f} | {each.per_hour:+.2f}"
        lines.append(f"| {each.process} | {each.measure} | {numbers} |")
    return "\n".join(lines) + "\n"


def append(path: Path, slopes: Sequence[Slope], preset: str, minutes: float) -> None:
    """Append the slopes to a CSV file, which gets a header first if it is new."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(["date", "version", "preset", "minutes", *Slope._fields])
        for each in slopes:
            numbers = [round(value, 3) for value in each[2:]]
            writer.writerow([time.strftime("%Y-%m-%d"), __version__, preset, f"{minutes:g}", *each[:2], *numbers])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", nargs="?", default="cartpole-dqn")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--append", type=Path, help="CSV file to which the rows are appended")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    args = parser.parse_args()
    slopes = fit(soak(args.preset, args.minutes, args.settings))
    sys.stdout.write(table(slopes))
    if args.append is not None:
        append(args.append, slopes, args.preset, args.minutes)


if __name__ == "__main__":
    main()
