"""How a run ended, for the command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from surreal.config import Config
from surreal.main.process.endings import Ending

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
    ending: Ending
    env_steps: int
    time_s: float

    def files(self) -> list[str]:
        """What the run left in its folder, of what a person looks at first."""
        return [name for name in _FILES if (self.folder / name).exists()]
