"""Makes the callbacks and sinks that a configuration names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from surreal.config import Config, accepted_names, check_args, import_class
from surreal.config.schema.fields import ClassSection
from surreal.run.observers.callback import Callback, Callbacks
from surreal.run.observers.feeding import SinkFeeder
from surreal.run.observers.files import MetricSink

T = TypeVar("T")

#: What a run has for their constructors, by the names of parameters.
_OFFERED = ("run", "process", "run_dir", "seed")


def check_observers(config: Config) -> None:
    """Check what a configuration names, without making anything.

    Raises:
        ConfigError: a class is not found, does not fit, or has no such arguments.
    """
    for place, settings in enumerate(config.callbacks):
        _find(config, f"callbacks.{place}", settings, Callback)
    for place, settings in enumerate(config.sinks):
        cls, _ = _find(config, f"sinks.{place}", settings, MetricSink)
        try:
            cls.require()
        except ImportError as error:
            key = f"sinks.{place}.class"
            raise config.refusal(key, f"{key}: {cls.__qualname__} {error}") from error


def make_callbacks(config: Config, **offered: Any) -> Callbacks:
    """Make the callbacks of a process.

    Raises:
        ConfigError: one cannot be made.
    """
    found = enumerate(config.callbacks)
    return Callbacks([_make(config, f"callbacks.{place}", settings, Callback, offered) for place, settings in found])


def make_feeder(config: Config, run_dir: Path, *, is_last: bool, **offered: Any) -> SinkFeeder:
    """Make what feeds the sinks of a run's metrics."""
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
