"""The outcome of a run, from the launcher."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from surreal.config import Config
from surreal.run.process.ending import Counts, Ending, ExitCode

#: Files that are listed when a run ends.
FILES = (
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
    """A run after its end, as `surreal run` and `surreal.train` report it."""

    run: str
    folder: Path
    config: Config
    ending: Ending
    counts: Counts
    time_s: float
    best: dict[str, Any] | None = None  #: the best evaluation round

    def files(self) -> list[str]:
        """List the files that the run left."""
        return [name for name in FILES if (self.folder / name).exists()]

    def last_words(self) -> list[str]:
        """Return the lines to print at the end of the run, after the error if it failed."""
        words = [] if self.ending.exit_code is ExitCode.FAILED else [f"ended: {self.ending.reason}"]
        updates, skipped = self.counts.updates, self.counts.skipped_updates
        if skipped:
            words.append(f"{skipped:,} of {updates:,} updates were skipped: their gradients were not finite")
        words.append(f"results in {self.folder}: {', '.join(self.files())}")
        policy = self.folder / "eval" / "best.safetensors"
        if self.best is not None and policy.exists():
            from surreal.run.build.trust import imports_of  # gymnasium comes with it

            option = " --trust" if any(imports_of(self.config)) else ""
            words.append(
                f"best return {self.best['mean_return']:.1f}; to see it: surreal play {_short(policy)}{option}"
            )
        return words


def _short(path: Path) -> str:
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
