"""`Report`: the disturbances of a run, its recoveries, and the invariants that held, with their evidence."""

from __future__ import annotations

import csv
import io
import json
import platform
import signal
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from surreal import __version__
from surreal.base.errors import ConfigError, FolderError
from surreal.base.system.files import append_whole, write_whole
from surreal.plugins.chaos.plan import role_of
from surreal.plugins.chaos.verdicts import DOUBLED, LOST, Downtime, Recovery, Verdict
from surreal.run.process.ending import ExitCode

#: Formats of a report, by the ending of its name.
_SUFFIXES = (".md", ".json")
#: Columns of a table of tests; `lost` and `doubled` are numbers of violations.
_COLUMNS = ("date", "version", "seed", "kills", "lost", "doubled", "median_s", "longest_s", "holds", "command")


@dataclass(frozen=True)
class Report:
    """The result of a chaos test."""

    title: str  #: the run
    command: str  #: text of the command
    seed: int
    time_s: float  #: duration of the test
    recoveries: Sequence[Recovery]  #: the disturbances, each with its recovery
    verdicts: Sequence[Verdict]
    ending: str  #: how the run ended, or that it continues
    interrupted: ExitCode | None = None  #: exit code of a signal that ended the test early

    @property
    def holds(self) -> bool:
        return all(verdict.holds for verdict in self.verdicts)

    @property
    def exit_code(self) -> ExitCode:
        if not self.holds:
            return ExitCode.BROKEN
        return ExitCode.OK if self.interrupted is None else self.interrupted

    def lines(self) -> list[str]:
        """Return the lines for a terminal: the invariants, because the disturbances were already shown."""
        lines = [self._summary()]
        for verdict in self.verdicts:
            lines.append(f"  {'held  ' if verdict.holds else 'BROKEN'}  {verdict.name}: {verdict.evidence}")
            lines += [f"          {text}" for text in verdict.violations]
            lines += [f"          not promised: {text}" for text in verdict.not_promised]
        return [*lines, self._ending]

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.title,
            "command": self.command,
            "seed": self.seed,
            "time_s": round(self.time_s, 1),
            "holds": self.holds,
            "ending": self._ending,
            "disturbances": [_plain(recovery) for recovery in self.recoveries],
            "invariants": [{"holds": verdict.holds, **asdict(verdict)} for verdict in self.verdicts],
        }

    def to_markdown(self) -> str:
        lines = [f"`{self.command}`: {self._summary()} {self._ending[:1].upper()}{self._ending[1:]}.", ""]
        lines += ["| invariant | | evidence |", "|---|---|---|"]
        for verdict in self.verdicts:
            notes = [*verdict.violations, *(f"not promised: {text}" for text in verdict.not_promised)]
            evidence = "<br>".join([verdict.evidence, *notes]).replace("|", "\\|")
            lines.append(f"| {verdict.name} | {'held' if verdict.holds else '**broken**'} | {evidence} |")
        lines += ["", "| disturbance | how often | lasted, s | until the run recovered, s: median, longest |"]
        groups = defaultdict[tuple[str, str], list[Recovery]](list)
        for recovery in self.recoveries:
            groups[recovery.kind, recovery.target].append(recovery)
        lines += ["|---|---|---|---|", *(_row(*group, found) for group, found in sorted(groups.items()))]
        lines += _downtimes(self.recoveries)
        lines += ["", f"On Python {platform.python_version()}, {platform.system()} {platform.machine()}."]
        return "\n".join(lines) + "\n"

    def write(self, path: Path) -> None:
        text = json.dumps(self.to_json(), indent=2) + "\n" if path.suffix == ".json" else self.to_markdown()
        _write(path, lambda: write_whole(path, text))

    def append(self, path: Path) -> None:
        """Append a row to a table of tests (CSV); a new file gets a header."""
        broken = {verdict.name: len(verdict.violations) for verdict in self.verdicts}
        took = [each.took_s for each in self.recoveries if each.killed and each.took_s is not None]
        times = (round(statistics.median(took), 2), round(max(took), 2)) if took else ("", "")
        kills = sum(each.killed != "" for each in self.recoveries)
        counts = (self.seed, kills, broken[LOST], broken[DOUBLED])
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not path.exists():
            writer.writerow(_COLUMNS)
        writer.writerow((time.strftime("%Y-%m-%d"), __version__, *counts, *times, self.holds, self.command))
        _write(path, lambda: append_whole(path, text.getvalue().encode()))

    @property
    def _ending(self) -> str:
        if self.interrupted is None:
            return self.ending
        return f"interrupted by {signal.Signals(self.interrupted - 128).name}, all healed; {self.ending}"

    def _summary(self) -> str:
        broken = sum(not verdict.holds for verdict in self.verdicts)
        number = len(self.recoveries)
        took = [recovery.took_s for recovery in self.recoveries if recovery.took_s is not None]
        times = f", recovered after {statistics.median(took):.1f} s (median), {max(took):.1f} at most" if took else ""
        state = "all invariants held" if not broken else f"{broken} of {len(self.verdicts)} invariants are broken"
        count = "1 disturbance" if number == 1 else f"{number} disturbances"
        return f"{self.title}, {count} in {self.time_s:.0f} s with seed {self.seed}{times}; {state}."


def check_path(path: Path, option: str = "--report", suffixes: Sequence[str] = _SUFFIXES) -> None:
    """Refuse a path whose ending is not that of a format."""
    if path.suffix not in suffixes:
        raise ConfigError(f"{option} is {path}; it must end with {' or '.join(suffixes)}", key=option)


def _write(path: Path, write: Callable[[], object]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write()
    except OSError as error:
        raise FolderError(f"{path} could not be written: {error}") from error


def _plain(recovery: Recovery) -> dict[str, Any]:
    lasted = 0.0 if recovery.ended_s is None else recovery.ended_s - recovery.began_s
    return {
        "number": recovery.number,
        "at_s": round(recovery.began_s, 2),
        "kind": recovery.kind,
        "target": recovery.target,
        "detail": recovery.detail,
        "lasted_s": round(lasted, 2),
        "recovery_s": None if recovery.took_s is None else round(recovery.took_s, 2),
        "downtime": None if recovery.downtime is None else recovery.downtime._asdict(),
    }


def _row(kind: str, target: str, found: Sequence[Recovery]) -> str:
    lasted = [recovery.ended_s - recovery.began_s for recovery in found if recovery.ended_s is not None]
    took = [recovery.took_s for recovery in found if recovery.took_s is not None]
    held = f"{min(lasted):.1f} .. {max(lasted):.1f}" if lasted and max(lasted) >= 0.1 else ""
    times = f"{statistics.median(took):.1f}, {max(took):.1f}" if took else "never"
    return f"| {kind} {'Redis' if '://' in target else target} | {len(found)} | {held} | {times} |"


def _downtimes(recoveries: Sequence[Recovery]) -> list[str]:
    """Return a table of the parts of the downtime after kills, by role; no lines without such kills."""
    by_role = defaultdict[str, list[list[float]]](list)
    for each in recoveries:
        if each.downtime is not None and each.took_s is not None:
            by_role[role_of(each.target)].append([each.took_s, sum(each.downtime), *each.downtime])
    if not by_role:
        return []
    parts = [name.removesuffix("_s").replace("_", " ") for name in Downtime._fields]
    titles = ["killed", "how often", "the run", "the process", *parts]
    lines = ["", "Seconds after a kill, median and 95th percentile: until the run recovered, until the process worked"]
    lines += ["again, and the parts of that time.", "", f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for role, found in sorted(by_role.items()):
        middles, highs = np.percentile(found, (50, 95), axis=0)
        columns = [f"{middle:.1f}, {high:.1f}" for middle, high in zip(middles, highs, strict=True)]
        lines.append(f"| {role} | {len(found)} | {' | '.join(columns)} |")
    return lines
