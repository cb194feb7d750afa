"""Sinks: the base, and those that write metrics to the console, a CSV file, Weights & Biases or MLflow."""

from __future__ import annotations

import csv
import fnmatch
import io
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from surreal.base.system.files import append_whole, rotate
from surreal.base.system.program import install_command


class Numbers(NamedTuple):
    """Metrics of a process at one moment."""

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
        """Check that the packages of this kind of sink are installed.

        Raises:
            ImportError: it is not installed; the message has the command.
        """

    @classmethod
    def waits_for_end(cls, **_: Any) -> bool:
        """Whether a sink with these arguments gets everything at the end of a run, from one process that makes it."""
        return False

    @abstractmethod
    def write(self, numbers: Sequence[Numbers]) -> None:
        """Take some numbers, one at least."""

    def close(self) -> None:
        """Take note that nothing follows from this process; another one may continue."""


class ConsoleSink(MetricSink):
    """Writes chosen metrics as text: to the terminal of `surreal learner`, or to `logs/learner.out` of `surreal run`.

    Args:
        metrics: names, or patterns such as `eval/*`, of what is shown.
    """

    def __init__(
        self, metrics: Sequence[str] = ("eval/episode_return", "agent/episode_return", "learner/loss")
    ) -> None:
        self._patterns = tuple(metrics)

    def write(self, numbers: Sequence[Numbers]) -> None:
        for each in numbers:
            shown = [
                f"{name} {value:.6g}"
                for name, value in each.values.items()
                if any(fnmatch.fnmatchcase(name, pattern) for pattern in self._patterns)
            ]
            if shown:
                sys.stdout.write(f"{each.step:,} {each.process}: {', '.join(shown)}\n")
        sys.stdout.flush()


_HEADER = ("time", "process", "step", "metric", "value")


class CsvSink(MetricSink):
    """Appends a row for each number: time in s since 1970, process, env steps, name, value.

    Args:
        run_dir: the run's folder.
        path: path of the file, from that folder.
        max_bytes: size at which the file becomes `metrics.csv.older`, in place of the one before it; > 0. Raising it
            keeps more rows.
    """

    def __init__(self, run_dir: Path, path: str = "metrics.csv", *, max_bytes: int = 512 << 20) -> None:
        self._path, self._max_bytes = run_dir / path, max_bytes

    def write(self, numbers: Sequence[Numbers]) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        rotate(self._path, self._max_bytes)
        if not self._path.exists():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            writer.writerow(_HEADER)
        for each in numbers:
            for name, value in each.values.items():
                writer.writerow((f"{each.time:.3f}", each.process, each.step, name, repr(value)))
        append_whole(self._path, text.getvalue().encode())  # what fails is tried again


class WandbSink(MetricSink):
    """Logs to Weights & Biases (extra `wandb`), by env steps; a run that is resumed continues there as well.

    Names are those of `metrics.jsonl`; of several agents, with the process in front: `agent-1/agent/episode_return`.

    Args:
        run: id of the run, and of that at Weights & Biases.
        run_dir: the run's folder, in which files for a later upload are kept.
        project: where the run is listed.
        entity: user or team; None takes the user's own.
        group: group of runs that belong together, such as seeds of one configuration.
        mode: online, or offline: keep all in the run's folder, for `wandb sync`. Each process that logs offline makes
            a folder, so in a run with a launcher one process logs everything when the run ends.
    """

    def __init__(
        self,
        run: str,
        run_dir: Path,
        *,
        project: str = "surreal",
        entity: str | None = None,
        group: str | None = None,
        mode: Literal["online", "offline"] = "online",
    ) -> None:
        self.require()
        import wandb

        run_dir.mkdir(parents=True, exist_ok=True)
        self._run: Any = wandb.init(
            id=run,
            name=run,
            dir=str(run_dir),
            project=project,
            entity=entity,
            group=group,
            mode=mode,
            resume="allow",
            settings=wandb.Settings(silent=True, console="off", disable_git=True),
        )
        self._run.define_metric("env_steps")
        self._run.define_metric("*", step_metric="env_steps")

    @classmethod
    def require(cls) -> None:
        try:
            import wandb  # noqa: F401
        except ImportError as error:
            raise ImportError(f"needs Weights & Biases: {install_command('wandb')}") from error

    @classmethod
    def waits_for_end(cls, **args: Any) -> bool:
        return args.get("mode") == "offline"

    def write(self, numbers: Sequence[Numbers]) -> None:
        for each in numbers:
            self._run.log({"env_steps": each.step, **with_process(each)})

    def close(self) -> None:
        self._run.finish()


def with_process(numbers: Numbers) -> dict[str, float]:
    """Put the process's name before the metrics of agents after the first, so that none hides another."""
    is_one_of_many = numbers.process.rpartition("-")[2].isdecimal() and not numbers.process.endswith("-0")
    prefix = f"{numbers.process}/" if is_one_of_many else ""
    return {f"{prefix}{name}": value for name, value in numbers.values.items()}


#: Metrics that a server takes at once.
_MOST = 1000


class MlflowSink(MetricSink):
    """Logs to an MLflow server, or to its own folder or file (extra `mlflow`), by env steps.

    A run that is resumed continues in the one of its name. Numbers that are not finite are left out, as MLflow's stores
    do not take all of them.

    Args:
        run: id of the run, and name of that in MLflow.
        tracking_uri: `http://host:5000`, `sqlite:///path/to/file.db`; None: as MLFLOW_TRACKING_URI says.
        experiment: where the run is listed; made if it does not exist.
    """

    def __init__(self, run: str, *, tracking_uri: str | None = None, experiment: str = "surreal") -> None:
        self.require()
        from mlflow.entities import RunStatus
        from mlflow.tracking import MlflowClient

        self._client: Any = MlflowClient(tracking_uri)
        found = self._client.get_experiment_by_name(experiment)
        number = self._client.create_experiment(experiment) if found is None else found.experiment_id
        earlier = self._client.search_runs([number], f"attributes.run_name = '{run}'", max_results=1)
        self._run_id = (earlier[0] if earlier else self._client.create_run(number, run_name=run)).info.run_id
        self._finished = RunStatus.to_string(RunStatus.FINISHED)

    @classmethod
    def require(cls) -> None:
        try:
            import mlflow.tracking  # noqa: F401
        except ImportError as error:
            raise ImportError(f"needs MLflow: {install_command('mlflow')}") from error

    def write(self, numbers: Sequence[Numbers]) -> None:
        from mlflow.entities import Metric

        metrics = [
            Metric(name, value, int(1000 * each.time), each.step)
            for each in numbers
            for name, value in with_process(each).items()
            if math.isfinite(value)
        ]
        for start in range(0, len(metrics), _MOST):
            self._client.log_batch(self._run_id, metrics=metrics[start : start + _MOST])

    def close(self) -> None:
        self._client.set_terminated(self._run_id, self._finished)
