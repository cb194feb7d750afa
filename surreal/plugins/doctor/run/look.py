"""`Look`: the state of a run, with the metrics that its processes have sent in the last minute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from surreal.base.errors import CodecError
from surreal.config import Config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.records import decode_entry
from surreal.run.view.reader import RunReader
from surreal.run.view.run_view import RunView

#: Length of the window, and the shortest span in which rates are known, s.
WINDOW_S = 60.0
LEAST_SPAN_S = 5.0
#: Maximum number of entries of the run's log that are read in all, and at once.
_MOST_ENTRIES, _AT_ONCE = 6000, 500


class Point(NamedTuple):
    """A value of a metric."""

    time_s: float  #: by the server's clock
    value: float


@dataclass(frozen=True)
class Record:
    """The metrics and errors of one life of a process in the window."""

    process: str  #: its id
    name: str
    role: str
    offsets_s: tuple[float, ...]  #: the server's clock minus the process's, as it measured them
    errors: tuple[str, ...]  #: messages of its log, ERROR or worse
    series: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)

    def growth(self, metric: str) -> float:
        """Return the growth of a metric in the window; 0 if it is missing."""
        points = self.series.get(metric, ())
        return points[-1].value - points[0].value if points else 0.0

    def rate(self, metric: str) -> float | None:
        """Return the growth in a second; None if the window is too short."""
        points = self.series.get(metric, ())
        span_s = points[-1].time_s - points[0].time_s if points else 0.0
        return None if span_s < LEAST_SPAN_S else (points[-1].value - points[0].value) / span_s

    def mean(self, metric: str) -> float | None:
        """Return the mean of a metric over the window; None if it is missing."""
        points = self.series.get(metric, ())
        return sum(point.value for point in points) / len(points) if points else None

    def last(self, metric: str) -> float | None:
        points = self.series.get(metric, ())
        return points[-1].value if points else None


@dataclass(frozen=True)
class Look:
    """The state of a run now."""

    run: str
    config: Config
    view: RunView
    records: tuple[Record, ...]

    @property
    def is_going_on(self) -> bool:
        """Whether a process is alive and the run was not told to end."""
        return bool(self.view.alive) and not self.view.stop_reason

    def living(self, prefix: str) -> list[Record]:
        """List the living processes with metrics of a group, such as `learner/`."""
        alive = {beat.id for beat in self.view.alive}
        found = [record for record in self.records if record.process in alive]
        return [record for record in found if any(name.startswith(prefix) for name in record.series)]

    @property
    def learner(self) -> Record | None:
        """The process that learns, or the first of several."""
        return next(iter(self.living("learner/updates")), None)


def look_at(client: RedisClient, config: Config, *, window_s: float = WINDOW_S) -> Look:
    """Read the state of a run and the metrics of the last `window_s`; nothing is changed."""
    return Look(
        client.run,
        config,
        RunReader(client, has_counts=True, is_patient=True, policy=config.published_policy).read(),
        tuple(read_records(client, window_s)),
    )


def read_records(client: RedisClient, window_s: float) -> Iterator[Record]:
    """Read the metrics that a run's processes have sent in the window, one record per process."""
    now_s = client.server_time_s()
    entries: dict[str, list[Any]] = {}
    newest, left = "+", _MOST_ENTRIES
    while left > 0:
        begin = f"{int(1000 * (now_s - window_s))}-0"
        found: Any = client.redis.xrevrange(client.run_keys.log, max=newest, min=begin, count=_AT_ONCE)
        for _, fields in found:
            try:
                entry = decode_entry(fields)
            except CodecError:
                continue
            entries.setdefault(entry.process, []).append(entry)
        if len(found) < _AT_ONCE:
            break
        left -= len(found)
        newest = f"({found[-1][0].decode()}"
    for process, parts in entries.items():
        parts.reverse()
        yield _record_of(process, parts)


def _record_of(process: str, entries: list[Any]) -> Record:
    series: dict[str, list[Point]] = {}
    errors: list[str] = []
    for entry in entries:
        for line in entry.lines:
            if line["kind"] == "metrics":
                for name, value in line["values"].items():
                    series.setdefault(name, []).append(Point(line["time"] + entry.offset_s, value))
            elif line["kind"] == "log" and line["level"] in ("ERROR", "CRITICAL"):
                errors.append(line["message"])
    offsets_s = tuple(entry.offset_s for entry in entries)
    made = {name: tuple(points) for name, points in series.items()}
    return Record(process, entries[0].name, entries[0].role, offsets_s, tuple(errors), made)
