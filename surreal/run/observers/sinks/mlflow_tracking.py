"""`MlflowSink`: a run's metrics in MLflow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from surreal.base.system.program import install_command
from surreal.run.observers.sinks.base import MetricSink, Numbers
from surreal.run.observers.sinks.weights_and_biases import with_process

#: Metrics that a server takes at once.
_MOST = 1000


class MlflowSink(MetricSink):
    """Logs to an MLflow server, or into a folder or file of its own (extra `mlflow`), by env steps.

    A run that is resumed goes on in the one of its name. Numbers that are not finite are left out, as MLflow's stores
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
