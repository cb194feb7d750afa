"""`WandbSink`: a run's metrics in Weights & Biases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from surreal.base.system.program import install_command
from surreal.run.observers.sinks.base import MetricSink, Numbers


class WandbSink(MetricSink):
    """Logs to Weights & Biases (extra `wandb`), by env steps; a run that is resumed goes on there as well.

    Names are those of `metrics.jsonl`; of several agents, with the process in front: `agent-1/agent/episode_return`.

    Args:
        run: id of the run, and of that at Weights & Biases.
        run_dir: the run's folder, in which files for a later upload are kept.
        project: where the run is listed.
        entity: user or team; None takes the user's own.
        group: of runs that belong together, such as seeds of one configuration.
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
    """Name metrics so that those of one process do not hide those of another: agents after the first say which."""
    is_one_of_many = numbers.process.rpartition("-")[2].isdecimal() and not numbers.process.endswith("-0")
    prefix = f"{numbers.process}/" if is_one_of_many else ""
    return {f"{prefix}{name}": value for name, value in numbers.values.items()}
