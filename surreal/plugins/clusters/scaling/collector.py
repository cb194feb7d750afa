"""`RunCollector`: what a scrape gets. Redis is read when somebody asks, and only then.

A run that is gone, and all runs while Redis is away, have no samples: Prometheus then knows that they are stale, where
the last value would look like a run that stands still.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from surreal.base.errors import SurrealError
from surreal.plugins.clusters.scaling.figures import FIGURES, Figure, processes_by_role
from surreal.run.view.reader import RunReader, RunView

logger = logging.getLogger(__name__)


class RunCollector(Collector):
    """Reads the runs, once a scrape; scrapes that come together take turns.

    Args:
        reader: of the runs.
        clock: seconds, monotonic.

    Attributes:
        is_away: whether Redis did not answer the last scrape.
    """

    def __init__(self, reader: RunReader, clock: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._clock = clock
        self._errors = 0
        self.is_away = False
        self._lock = threading.Lock()

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        with self._lock:
            began_s = self._clock()
            found = self._read()
            took_s = self._clock() - began_s
            is_up, errors = not self.is_away, self._errors
        yield GaugeMetricFamily("surreal_redis_up", "1 if Redis answered this scrape, else 0.", value=is_up)
        yield GaugeMetricFamily("surreal_scrape_seconds", "Time that reading Redis took.", value=took_s)
        yield CounterMetricFamily("surreal_scrape_errors_total", "Scrapes that Redis did not answer.", value=errors)
        for figure in FIGURES:
            yield _family(figure, found)
        processes = GaugeMetricFamily("surreal_processes", "Processes that are alive.", labels=("run", "role"))
        for now in found:
            for role, count in sorted(processes_by_role(now).items()):
                processes.add_metric((now.run, role), count)
        yield processes

    def _read(self) -> list[RunView]:
        try:
            found = [view for view in self._reader.read_all() if view.alive]
        except (RedisError, SurrealError) as error:
            self._errors += 1
            logger.log(logging.DEBUG if self.is_away else logging.WARNING, "no figures: %s", error)
            self.is_away = True
            return []
        if self.is_away:
            logger.info("Redis answers again")
        self.is_away = False
        return found


def _family(figure: Figure, found: list[RunView]) -> Metric:
    make = CounterMetricFamily if figure.kind == "counter" else GaugeMetricFamily
    family = make(figure.name, figure.help, labels=("run",))
    for now in found:
        value = figure.read(now)
        if value is not None and math.isfinite(value):
            family.add_metric((now.run,), value)
    return family
