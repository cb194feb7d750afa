"""Sinks that send metrics to Weights & Biases or MLflow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from surreal.base.system.program import install_command
from surreal.run.observers.files import MetricSink, Numbers


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
    """Name metrics so that those of one process do not hide those of another: agents after the first have their number
    in the name.
    """
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
