"""How a run ended: for the command line, and for `result.json`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surreal.config import Config
from surreal.main.launch.snapshot import Snapshot

#: What a person looks at first, if it is there.
_FILES = (
    "result.json",
    "eval/scores.jsonl",
    "eval/best.safetensors",
    "eval/videos",
    "checkpoints",
    "tensorboard",
    "logs",
)


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended."""

    run: str
    folder: Path
    config: Config
    reason: str
    is_failure: bool
    is_interrupted: bool
    env_steps: int
    time_s: float

    def files(self) -> list[str]:
        """What the run left in its folder, of what a person looks at first."""
        return [name for name in _FILES if (self.folder / name).exists()]


def result_of(
    outcome: RunOutcome, best: dict[str, Any] | None, snapshot: Snapshot, *, started: float, restarts: int
) -> dict[str, Any]:
    """The content of `result.json`."""
    return {
        "run": outcome.run,
        "name": outcome.config.name,
        "seed": outcome.config.seed,
        "status": "failed" if outcome.is_failure else "interrupted" if outcome.is_interrupted else "finished",
        "reason": outcome.reason,
        "env_steps": outcome.env_steps,
        "updates": snapshot.updates,
        "version": snapshot.version,
        "time_s": round(outcome.time_s, 3),
        "started": started,
        "restarts": restarts,
        "best": best,
    }
