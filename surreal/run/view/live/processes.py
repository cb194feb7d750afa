"""The processes of a run as lines: one for each, or one for all of a role if there is not enough space."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.text import Text

from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.run.process.roles import AGENT, EVAL, LEARNER
from surreal.run.view.live.text import Glyphs, duration, fitted, plain, rate
from surreal.run.view.run_view import whole

_ORDER = (LEARNER.counts_as, AGENT.counts_as, EVAL.counts_as)
#: The rate of a role's processes: metric and unit.
_RATES = {
    LEARNER.counts_as: ("learner/updates_per_s", "updates/s"),
    AGENT.counts_as: ("agent/env_steps_per_s", "steps/s"),
}
_WIDE = 110


class _Row(NamedTuple):
    name: str
    rate: str
    version: str
    restarts: str
    host: str
    state: str
    style: str = ""


_TITLES = _Row("process", "rate", "version", "restarts", "host, pid", "state", "dim")


def process_lines(
    processes: Sequence[Heartbeat], restarts: Mapping[str, int], *, width: int, rows: int, glyphs: Glyphs
) -> list[Text]:
    """Draw all processes, with titles."""
    if rows < 2 or not processes:
        return []
    ordered = sorted(processes, key=_place)
    found = _folded(ordered, restarts, rows - 1) if len(ordered) > rows - 1 else [_row(b, restarts) for b in ordered]
    return _aligned([_TITLES, *found], width, glyphs)


def _folded(ordered: Sequence[Heartbeat], restarts: Mapping[str, int], rows: int) -> list[_Row]:
    """Show processes with problems one by one while there is space, and the others of each role as one line."""
    roles = list(dict.fromkeys(beat.role for beat in ordered))
    troubled = sorted((beat for beat in ordered if _severity(beat, restarts)), key=lambda b: -_severity(b, restarts))
    alone = {beat.name for beat in troubled[: max(rows - len(roles), 0)]}
    found = []
    for role in roles:
        mine = [beat for beat in ordered if beat.role == role]
        found += [_row(beat, restarts) for beat in mine if beat.name in alone]
        if others := [beat for beat in mine if beat.name not in alone]:
            found.append(_row(others[0], restarts) if len(others) == 1 else _row_of_many(role, others, restarts))
    if len(found) > rows:
        found = [*found[: rows - 1], _Row(f"{len(found) - rows + 1} more", "", "", "", "", "")]
    return found


def _row(beat: Heartbeat, restarts: Mapping[str, int]) -> _Row:
    state, style = _state(beat)
    count = restarts.get(beat.name, 0)
    return _Row(
        beat.name,
        _rate([beat]),
        f"{beat.version:,}" if beat.version else "-",
        str(count) if count else "-",
        f"{beat.host}, {beat.pid}",
        state,
        style,
    )


def _row_of_many(role: str, beats: Sequence[Heartbeat], restarts: Mapping[str, int]) -> _Row:
    states = [_state(beat) for beat in beats]
    counts = Counter(words.partition(",")[0] for words, _ in states).most_common()
    styles = {style for _, style in states}
    versions = sorted({beat.version for beat in beats if beat.version})
    total, hosts = sum(restarts.get(beat.name, 0) for beat in beats), {beat.host for beat in beats}
    return _Row(
        f"{len(beats)} x {role}",
        _rate(beats),
        "-" if not versions else f"{versions[0]:,}" if len(versions) == 1 else f"{versions[0]:,}-{versions[-1]:,}",
        str(total) if total else "-",
        next(iter(hosts)) if len(hosts) == 1 else f"{len(hosts)} hosts",
        f"all {counts[0][0]}" if len(counts) == 1 else ", ".join(f"{count} {words}" for words, count in counts),
        "red" if "red" in styles else "yellow" if "yellow" in styles else "",
    )


def _state(beat: Heartbeat) -> tuple[str, str]:
    """State in a word, and its color; other lines show what it waits for or hangs in."""
    if not beat.is_alive():
        return f"dead, seen {duration(abs(beat.age_s))} ago", "red"
    if beat.hangs_in:
        return "hanging", "red"
    return ("waiting", "yellow") if beat.waits_for else ("ok", "")


def _severity(beat: Heartbeat, restarts: Mapping[str, int]) -> int:
    """Rank a process's need for its own line; waiting alone is normal."""
    return 2 if _state(beat)[1] == "red" else int(beat.name in restarts)


def _rate(beats: Sequence[Heartbeat]) -> str:
    role = beats[0].role
    if role == EVAL.counts_as:
        rounds = sum(whole(beat.metrics, "eval/rounds_total") for beat in beats)
        return f"{rounds:,} round{'s' * (rounds != 1)}"
    metric, unit = _RATES.get(role, ("", ""))
    found = [beat.metrics[metric] for beat in beats if beat.is_alive() and metric in beat.metrics]
    return f"{rate(sum(found))} {unit}" if found else "-"


def _aligned(rows: Sequence[_Row], width: int, glyphs: Glyphs) -> list[Text]:
    """Align rows in columns; a narrow terminal drops the least important columns."""
    shown = ["name", "rate", "version", "restarts", "host", "state"]
    for name, least in (("host", _WIDE), ("version", 64), ("restarts", 52), ("rate", 38)):
        if width < least:
            shown.remove(name)
    cells = [[plain(getattr(row, name), glyphs) for name in shown] for row in rows]
    widths = [min(max(map(len, column)), width // 3) for column in zip(*cells, strict=True)]
    lines = []
    for row, texts in zip(rows, cells, strict=True):
        parts = [text[:size].ljust(size) for text, size in zip(texts[:-1], widths, strict=False)]
        text = Text("  ".join([*parts, texts[-1]]), style=row.style)
        lines.append(fitted(text, width, glyphs))
    return lines


def _place(beat: Heartbeat) -> tuple[int, str, list[tuple[int, str]]]:
    """Sort key: role, then name, with numbers in numerical order."""
    place = _ORDER.index(beat.role) if beat.role in _ORDER else len(_ORDER)
    parts = re.findall(r"(\d+)|(\D+)", beat.name)
    return place, beat.role, [(int(digits[:18]), "") if digits else (0, letters) for digits, letters in parts]
