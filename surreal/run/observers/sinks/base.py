"""`MetricSink`: takes a run's metrics, of all its processes; the base of a user's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Numbers(NamedTuple):
    """What a process told at one moment."""

    time: float  #: seconds since 1970, of the Redis server's clock
    process: str  #: such as "learner" or "agent-0"
    step: int  #: env steps of the whole run
    values: Mapping[str, float]  #: by name, see docs/metrics.md; nan and inf may be among them


class MetricSink(ABC):
    """Base of all sinks. A subclass gives `write`.

        class Printer(MetricSink):
            def write(self, numbers):
                for each in numbers:
                    print(each.step, each.values)

    The configuration names it, and the process that collects the run's metrics (the learner, and at the end a process
    of the launcher) makes it:

        sinks:
          - class: my_sinks.Printer

    A constructor that names them gets from the run: `run` (its id), `run_dir`, `process` and `seed`.

    Every line of `metrics.jsonl` is handed over once, in its order; the newest again if the process is killed between
    `write` and the note that it was done. What a method raises is logged, and the same lines are tried again later:
    training does not wait for a sink.
    """

    @classmethod
    def require(cls) -> None:
        """Check that what this kind of sink needs is installed.

        Raises:
            ImportError: it is not; says how to install it.
        """

    @classmethod
    def waits_for_end(cls, **_: Any) -> bool:
        """Whether a sink with these arguments gets everything at the end of a run, from one process that makes it."""
        return False

    @abstractmethod
    def write(self, numbers: Sequence[Numbers]) -> None:
        """Take some numbers, one at least."""

    def close(self) -> None:
        """Take note that nothing follows from this process; another one may go on."""
