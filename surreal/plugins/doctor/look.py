"""`Look`: a run's state, and the metrics that its processes sent in the last minute; its clocks, counts and replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from surreal.base.errors import CodecError
from surreal.config import Config
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.telemetry.records import decode_entry
from surreal.plugins.doctor.finding import Finding, fault, ok
from surreal.run.process.roles import RLX_SERVER
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


_SKEW_S, _JUMP_S, _FUTURE_S = 5.0, 2.0, 2.0
#: Smallest difference of clocks that is shown.
_TOLERANCE_S = 0.1


def clocks(look: Look) -> Iterator[Finding]:
    """Compare the clocks of the processes, and check whether one was set meanwhile."""
    offsets = {record.name: record.offsets_s[-1] for record in look.records if record.offsets_s}
    found: list[Finding] = []
    for record in look.records:
        # The first entry of a process is written before it knows the server's clock.
        known = record.offsets_s[1:]
        if known and max(known) - min(known) > _JUMP_S:
            jump_s = max(known) - min(known)
            found.append(fault("clock-jumps", f"the clock of {record.name} jumped by {jump_s:.1f} s"))
        elif known and abs(known[-1]) > _SKEW_S:
            where = "behind" if known[-1] > 0 else "ahead of"
            found.append(fault("process-clock-skew", f"{record.name} is {abs(known[-1]):.1f} s {where} Redis"))
    for beat in look.view.beats:
        if beat.age_s < -_FUTURE_S:
            found.append(fault("clock-jumps", f"{beat.name} gave a heartbeat {-beat.age_s:.0f} s from now"))
    yield from found
    if offsets and not found:
        furthest_s = max(_TOLERANCE_S, *map(abs, offsets.values()))
        yield ok(f"the clocks of {len(offsets)} processes are within {furthest_s:.2g} s of Redis'")


class _Counter(NamedTuple):
    """A metric that counts something bad."""

    metric: str
    fault: str  #: its name
    unit: str  #: its unit, as in "12 env steps dropped"
    #: whether it is a current amount; otherwise it only grows, and its growth in the last minute matters
    is_now: bool = False


_COUNTERS = (
    _Counter("sender/dropped_steps_total", "steps-dropped", "env steps dropped"),
    _Counter("replay/refused_chunks_total", "chunks-refused", "chunks refused"),
    _Counter("replay/stale_trajectories_total", "trajectories-stale", "trajectories dropped for their age"),
    _Counter("replay/shards_away_count", "shards-away", "shards away", is_now=True),
    _Counter("env/lost_episodes_total", "episodes-lost", "episodes lost"),
    _Counter("eval/void_episodes_total", "episodes-lost", "episodes of evaluation lost"),
    _Counter("env/worker_restarts_total", "workers-restarted", "workers restarted"),
    _Counter("learner/skipped_updates_total", "updates-skipped", "updates skipped"),
    _Counter("learner/rollbacks_total", "learner-went-back", "times gone back to a checkpoint"),
    _Counter("learner/checkpoint_upload_failures_total", "uploads-fail", "uploads failed"),
    _Counter("listener/refused_total", "parameters-refused", "versions of the parameters refused"),
    _Counter("telemetry/dropped_lines_total", "telemetry-dropped", "lines of logs and metrics dropped"),
)


def counts(look: Look) -> Iterator[Finding]:
    """Check all of these counters of all living processes."""
    is_clean = True
    records = look.living("")
    for counter in _COUNTERS:
        now, recent, names = 0.0, 0.0, []
        for record in records:
            if value := record.last(counter.metric) or 0.0:
                now += value
                recent += value if counter.is_now else record.growth(counter.metric)
                names.append(record.name)
        # An old event is only reported if its effect lasts.
        if recent > 0 or (now and counter.fault in ("updates-skipped", "learner-went-back", "chunks-refused")):
            is_clean = False
            lately = "" if counter.is_now else f", {recent:,.0f} of them in the last minute"
            is_wanted = counter.fault == "steps-dropped" and all(name.startswith(RLX_SERVER.name) for name in names)
            kind = "rlx-steps-dropped" if is_wanted and look.config.rlx.on_full == "drop" else counter.fault
            yield fault(kind, f"{now:,.0f} {counter.unit}{lately} ({', '.join(names[:3])})")
    if is_clean and records:
        yield ok("nothing was dropped, refused or skipped in the last minute")


#: Samples of an env step that are too few or too many, if no ratio is set.
_FEW, _MANY = 0.5, 200.0
#: Env steps after which an average is meaningful.
_LEAST_STEPS = 5000
#: Share of maxmemory that counts as full.
_FULL = 0.95


def usage(look: Look) -> Iterator[Finding]:
    """Check how often experience is sampled, and whether the limiter holds its band."""
    learner = look.learner
    if learner is None or not look.is_going_on:
        return
    steps, used = learner.last("replay/env_steps_total"), learner.last("replay/samples_per_insert")
    ratio = look.config.replay.samples_per_insert
    if steps is None or used is None or not learner.last("replay/transitions_count"):
        return
    if ratio is not None:
        yield from _band(learner, ratio, look.config.replay.samples_per_insert_tolerance, used)
    elif steps < _LEAST_STEPS or look.config.agent.round_steps is not None:
        return
    elif used < _FEW and (learner.last("replay/evicted_chunks_total") or 0) > 0 and _is_sampled(learner):
        yield fault("experience-unused", f"an env step is sampled {used:.2g} times on average")
    elif used > _MANY:
        yield fault("experience-overused", f"an env step is sampled {used:,.0f} times on average")
    else:
        yield ok(f"an env step is sampled {used:.3g} times on average")


def size(look: Look) -> Iterator[Finding]:
    """Check whether bytes, instead of the capacity, bound the replay."""
    learner = look.learner
    fill = learner.last("replay/fill_ratio") if learner is not None else None
    if learner is None or fill is None or not _is_sampled(learner):
        return
    there = learner.last("replay/transitions_count") or 0
    stored, bound = learner.last("replay/redis_bytes") or 0, look.config.replay.max_bytes
    if fill < 0.5 and learner.growth("replay/evicted_chunks_total") > 0 and stored > 0.8 * bound:
        per_step = learner.last("replay/bytes_per_transition") or 0
        yield fault(
            "replay-bound-by-bytes",
            f"{there:,.0f} transitions fill {stored / 2**20:,.0f} MiB, {fill:.0%} of the capacity; "
            f"each takes {per_step:,.0f} bytes",
        )
    else:
        yield ok(f"{there:,.0f} transitions, {fill:.0%} of the capacity, {stored / 2**20:,.3g} MiB in Redis")


def memory(look: Look, *, used_bytes: int, maxmemory_bytes: int) -> Iterator[Finding]:
    """Check whether the experience's Redis has room for the growing replay; `maxmemory_bytes` is 0 without a limit."""
    learner = look.learner
    if learner is None or not maxmemory_bytes or look.config.redis.replay_address is not None:
        return
    stored = learner.last("replay/redis_bytes") or 0.0
    wanted = used_bytes - stored + look.config.replay.max_bytes
    rate = learner.rate("replay/redis_bytes") or 0.0
    left = maxmemory_bytes - used_bytes
    if wanted > _FULL * maxmemory_bytes and rate > 0 and stored < 0.95 * look.config.replay.max_bytes:
        until = f"{left / rate:.0f} s" if left < 120 * rate else f"{left / rate / 60:.0f} min"
        yield fault(
            "redis-fills-up",
            f"the replay has {stored / 2**20:,.0f} MiB of {look.config.replay.max_bytes / 2**20:,.0f} and grows by "
            f"{rate / 2**20:.3g} MiB/s, but only {left / 2**20:,.0f} MiB are left: full in {until}",
        )
    elif rate > 0:
        yield ok(f"the replay grows by {rate / 2**20:.2g} MiB/s; {left / 2**20:,.0f} MiB of Redis are free")


def _band(learner: Record, ratio: float, tolerance: float | None, used: float) -> Iterator[Finding]:
    """Compare the samples and inserts in the window, whose difference the band bounds."""
    steps = learner.growth("replay/env_steps_total")
    sampled = learner.growth("replay/samples_total")
    if tolerance is None:  # the default is a few chunks and batches, less than a minute's
        tolerance = 0.25 * ratio * max(steps, 1.0) + 4096
    apart = sampled - ratio * steps
    if steps and abs(apart) > 2 * tolerance + 0.1 * ratio * steps:
        yield fault(
            "samples-per-insert-off",
            f"samples per insert are {sampled / steps:.3g} in the last minute, set to {ratio:g}",
        )
    else:
        yield ok(f"samples per insert are {used:.3g}, set to {ratio:g}")


def _is_sampled(learner: Record) -> bool:
    """Whether the replay samples transitions; one that is consumed keeps nothing."""
    return "replay/open_trajectories_count" not in learner.series
