"""Makes the callbacks and sinks that a configuration names, and feeds sinks with the metrics of a run's file."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

from surreal.base.system.files import older_path, write_whole
from surreal.config import Config, accepted_names, check_args, import_class
from surreal.config.schema.fields import ClassSection
from surreal.distributed.telemetry.render import METRICS_PATH
from surreal.run.observers.callback import Callback, Callbacks
from surreal.run.observers.files import MetricSink, Numbers

logger = logging.getLogger(__name__)

STATE_NAME = "sinks.json"
#: Read at once, bytes.
_BLOCK_BYTES = 1 << 20
#: How long a sink that failed is left alone, s.
_PAUSE_S = 10.0


class _Position(NamedTuple):
    """Position of a sink in a file, which its inode identifies, bytes."""

    file: int = 0
    offset: int = 0


@dataclass(eq=False, repr=False)
class SinkFeeder:
    """Feeds sinks; `step` again and again, in one thread."""

    run_dir: Path
    #: makers of the sinks, by the names of their classes; each is called when there is something to hand over first,
    #: since one may take seconds. None leaves a sink to another process
    makers: Sequence[tuple[str, Callable[[], MetricSink] | None]]
    _: KW_ONLY
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._path, self._state = self.run_dir / METRICS_PATH, self.run_dir / STATE_NAME
        self._names = [name for name, _ in self.makers]
        self._makers = [make for _, make in self.makers]
        self._sinks: list[MetricSink | None] = [None] * len(self.makers)
        self._done = self._load()
        self._paused_until = [-float("inf")] * len(self.makers)
        self._trouble = [""] * len(self.makers)

    def step(self) -> bool:
        """Send new metrics to the sinks, and return whether there may be more already."""
        has_more = [self._feed(place) for place in range(len(self._names))]
        return any(has_more)

    def close(self, timeout_s: float = 10.0) -> None:
        """Hand over the rest, and close the sinks; one that fails now has missed it."""
        deadline = self.clock() + timeout_s
        self._paused_until = [-float("inf")] * len(self._names)
        while self.step() and self.clock() < deadline:
            pass
        for place, sink in enumerate(self._sinks):
            try:
                if sink is not None:
                    sink.close()
            except Exception as error:
                logger.warning("sink %s was not closed: %s", self._names[place], error)
            self._sinks[place] = None

    def _feed(self, place: int) -> bool:
        make = self._makers[place]
        if make is None or self.clock() < self._paused_until[place]:
            return False
        numbers, end = self._read(self._done[place])
        if end.offset == self._done[place].offset:
            return False
        try:
            sink = self._sinks[place] = self._sinks[place] or make()
            if numbers:
                sink.write(numbers)
        except Exception as error:
            self._paused_until[place] = self.clock() + _PAUSE_S
            if self._trouble[place] != str(error):
                logger.warning("sink %s failed, and is tried again: %s", self._names[place], error)
                self._trouble[place] = str(error)
            return False
        if self._trouble[place]:
            logger.info("sink %s takes metrics again", self._names[place])
            self._trouble[place] = ""
        self._done[place] = end
        self._save()
        return True

    def _read(self, start: _Position) -> tuple[list[Numbers], _Position]:
        """Read whole lines from a position in the file; return their records, and the position after them."""
        try:
            is_moved = start.file != 0 and _file_of(older_path(self._path)) == start.file
            with (older_path(self._path) if is_moved else self._path).open("rb") as file:
                file.seek(start.offset)
                block = file.read(_BLOCK_BYTES)
                number = os.fstat(file.fileno()).st_ino
        except OSError:
            return [], start
        if is_moved and not block:
            return [], _Position()
        whole = block[: block.rfind(b"\n") + 1]
        found = [_parse(line) for line in whole.splitlines()]
        return [each for each in found if each is not None], _Position(number, start.offset + len(whole))

    def _load(self) -> list[_Position]:
        try:
            kept: dict[str, Any] = json.loads(self._state.read_text(encoding="utf-8"))
            found = [kept.get(f"{place}: {name}", 0) for place, name in enumerate(self._names)]
            # Earlier versions wrote only the offset.
            return [_Position(0, each) if isinstance(each, int) else _Position(*map(int, each)) for each in found]
        except (OSError, ValueError, TypeError, AttributeError):
            return [_Position()] * len(self._names)

    def _save(self) -> None:
        done = {f"{place}: {name}": self._done[place] for place, name in enumerate(self._names)}
        try:
            write_whole(self._state, json.dumps(done), is_synced=False)
        except OSError as error:
            logger.debug("%s was not written: %s", self._state, error)


def _file_of(path: Path) -> int:
    """Return the number of a file, which stays when it is moved; 0 if it does not exist."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _parse(line: bytes) -> Numbers | None:
    try:
        record = json.loads(line)
        values = {name: float(value) for name, value in record["metrics"].items()}
        return Numbers(float(record["time"]), str(record["process"]), int(record["step"]), values)
    except (ValueError, KeyError, TypeError, AttributeError):  # histograms, or a line of another program
        return None


T = TypeVar("T")

#: What a run has for their constructors, by the names of parameters.
_OFFERED = ("run", "process", "run_dir", "seed")


def check_observers(config: Config, why_fixed: str = "") -> None:
    """Check callbacks and sinks without making them; `why_fixed` refuses callbacks that set environments."""
    for place, settings in enumerate(config.callbacks):
        callback, _ = _find(config, f"callbacks.{place}", settings, Callback)
        if why_fixed and _sets_environments(callback):
            key = f"callbacks.{place}.class"
            raise config.refusal(key, f"{key}: {callback.__qualname__} calls set_environments, but {why_fixed}")
    for place, settings in enumerate(config.sinks):
        cls, _ = _find(config, f"sinks.{place}", settings, MetricSink)
        try:
            cls.require()
        except ImportError as error:
            key = f"sinks.{place}.class"
            raise config.refusal(key, f"{key}: {cls.__qualname__} {error}") from error


def _sets_environments(cls: type[Callback]) -> bool:
    """Whether the code of a method calls `set_environments`."""
    methods = [method for base in cls.__mro__ if base is not Callback for method in vars(base).values()]
    codes = [each.__code__ for each in methods if isinstance(each, FunctionType)]
    return any(Callback.set_environments.__name__ in code.co_names for code in codes)


def make_callbacks(
    config: Config, end: Callable[[str], object], set_attributes: Callable[[Mapping[str, Any]], object], **offered: Any
) -> Callbacks:
    """Make the callbacks of a process; arguments as in `Callbacks`."""
    found = enumerate(config.callbacks)
    made = [_make(config, f"callbacks.{place}", settings, Callback, offered) for place, settings in found]
    return Callbacks(made, end, set_attributes)


def make_feeder(config: Config, run_dir: Path, *, is_last: bool, **offered: Any) -> SinkFeeder:
    """Make the feeder of a run's metric sinks."""
    given = {**offered, "run_dir": run_dir, "seed": config.seed}

    def maker(place: int, settings: ClassSection) -> Callable[[], MetricSink] | None:
        key = f"sinks.{place}"
        if not is_last and _find(config, key, settings, MetricSink)[0].waits_for_end(**settings.args):
            return None
        return partial(_make, config, key, settings, MetricSink, given)

    makers = [(settings.class_path, maker(place, settings)) for place, settings in enumerate(config.sinks)]
    return SinkFeeder(run_dir, makers)


def _make(config: Config, key: str, settings: ClassSection, base: type[T], offered: Mapping[str, Any]) -> T:
    cls, args = _find(config, key, settings, base)
    accepted = accepted_names(cls)
    given = {name: value for name, value in offered.items() if name in accepted and name not in args}
    try:
        return cls(**given, **args)
    except (TypeError, ValueError, ImportError, OSError) as error:
        raise config.refusal(key, f"{key}: {cls.__qualname__} cannot be made: {error}") from error


def _find(config: Config, key: str, settings: ClassSection, base: type[T]) -> tuple[type[T], dict[str, Any]]:
    cls = import_class(settings.class_path, base, key=f"{key}.class", source=config.source_of(f"{key}.class"))
    given = [name for name in _OFFERED if name in accepted_names(cls) and name not in settings.args]
    return cls, check_args(cls, settings.args, f"{key}.args", given=given, source_of=config.source_of)
