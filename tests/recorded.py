"""Folders of runs as the processes of a run would have left them, made by a test."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from surreal.config import load_config
from surreal.run.process.ending import Counts, Ending, result_of
from surreal.run.process.run_folder import RunFolder

STARTED = 1_790_000_000.0


def record_run(
    path: Path, *, preset: str = "cartpole-dqn", seed: int = 0, overrides: Sequence[str] = (), peak: float = 100.0
) -> Path:
    """Make the folder of a run that is over, and whose return rose to a peak; returns the folder."""
    config = load_config(preset, [f"seed={seed}", *overrides])
    folder = RunFolder(path)
    folder.claim()
    folder.begin(config, path.name, STARTED)
    best = {"mean_return": peak}
    folder.write_result(
        result_of(config, path.name, Ending("max_env_steps"), started=STARTED, counts=Counts(1000, 100), best=best)
    )
    folder.release()
    lines: list[dict[str, Any]] = []
    for i in range(101):
        lines.append(
            _metrics("agent-0", 10 * i, {"agent/episode_return": peak * i / 100, "agent/env_steps_per_s": 50.0})
        )
        lines.append(_metrics("learner", 10 * i, {"learner/updates_total": float(i), "learner/loss": 1.0 / (i + 1)}))
    append(path / "metrics.jsonl", *lines)
    for i in range(11):
        write_round(path, i, peak * i / 10)
    return path


def write_metrics(path: Path, process: str, step: int, metrics: dict[str, Any]) -> None:
    """Add a line of metrics, one second after each hundred env steps."""
    append(path / "metrics.jsonl", _metrics(process, step, metrics))


def write_round(path: Path, number: int, mean_return: float | None) -> None:
    """Add a round of the evaluation, one each hundred env steps."""
    line = {"kind": "round", "round": number, "time": STARTED + number, "version": number, "updates": 10 * number}
    line |= {"global_step": 100 * number, "mean_return": mean_return, "std_return": 0.0, "mean_length": 5.0}
    episode = {"kind": "episode", "round": number, "return": mean_return}
    append(path / "eval" / "scores.jsonl", episode, line)


def append(path: Path, *lines: dict[str, Any]) -> None:
    """Add lines to a file."""
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))


def _metrics(process: str, step: int, metrics: dict[str, Any]) -> dict[str, Any]:
    return {"time": STARTED + step / 100, "process": process, "step": step, "metrics": metrics}
