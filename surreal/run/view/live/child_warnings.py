"""Warnings of the launcher's children, shown on the launcher's own console.

The launcher keeps each child's console in a file, `logs/NAME.out`. This follows the files and passes on warnings and
errors: each text once a minute, and a limited number for each child. Everything that environment programs print is
passed on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

_RECORD = re.compile(r"\d\d:\d\d:\d\d\.\d{3} (WARNING|ERROR|CRITICAL) (\S+) (.*)")
#: The last record of a child that failed: the launcher shows it as the run's reason.
_FINAL_RECORD = re.compile(r"\S+ ends: ")
_WAIT = re.compile(r"waiting (for|to|until) ")
_REPEAT_S = 60.0
_MAX_PER_MINUTE = 10
_MAX_READ_BYTES = 1 << 20


@dataclass(eq=False, repr=False)
class ChildWarnings:
    """Follows the consoles of children."""

    consoles: Mapping[str, Path]  #: file of each child by its name; what they already contain is skipped
    say: Callable[[str], object]
    _: KW_ONLY
    has_waits: bool = True  #: also pass on what children wait for; not needed where their heartbeats are shown
    printing: Collection[str] = ()  #: names of children whose whole output is passed on
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._consoles = dict(self.consoles)
        self._ignored = _FINAL_RECORD if self.has_waits else re.compile(f"{_FINAL_RECORD.pattern}|{_WAIT.pattern}")
        self._printing = frozenset(self.printing)
        self._read = {name: _size(path) for name, path in self._consoles.items()}
        self._rest = dict.fromkeys(self._consoles, b"")
        self._said_s: dict[str, float] = {}
        self._recent: dict[str, list[float]] = {name: [] for name in self._consoles}
        self._left_out = dict.fromkeys(self._consoles, 0)

    def poll(self) -> None:
        for name, path in self._consoles.items():
            for line in self._new_lines(name, path):
                if found := _RECORD.fullmatch(line):
                    self._pass_on(name, found[1], found[3])
                elif name in self._printing:
                    self.say(f"{name} | {line}")

    def _new_lines(self, name: str, path: Path) -> Iterable[str]:
        size = _size(path)
        if size < self._read[name]:  # the launcher has moved its content
            self._read[name], self._rest[name] = 0, b""
        if size == self._read[name]:
            return ()
        with path.open("rb") as file:
            file.seek(max(self._read[name], size - _MAX_READ_BYTES))
            data = self._rest[name] + file.read(_MAX_READ_BYTES)
        self._read[name] = size
        *lines, self._rest[name] = data.split(b"\n")
        return [line.decode("utf-8", "replace") for line in lines]

    def _pass_on(self, name: str, level: str, text: str) -> None:
        now, kind = self.clock(), re.sub(r"\d+", "#", text)
        if self._ignored.match(text) or now - self._said_s.get(kind, -_REPEAT_S) < _REPEAT_S:
            return
        self._said_s[kind] = now
        self._recent[name] = recent = [said_s for said_s in self._recent[name] if now - said_s < 60.0]
        if len(recent) >= _MAX_PER_MINUTE:
            self._left_out[name] += 1
            return
        recent.append(now)
        more, self._left_out[name] = self._left_out[name], 0
        if more:
            self.say(f"{name}: {more} more warnings are in {self._consoles[name]}")
        self.say(f"{name}: {level.lower()}: {text}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
