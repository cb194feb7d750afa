"""The scores of a run: the file of rounds, the best policy, and its order."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from surreal.base.checkpoint import save_checkpoint
from surreal.base.errors import FolderError
from surreal.base.ranges import PositiveInt, checked
from surreal.base.system.files import append_whole, rotate, write_whole
from surreal.run.build.checkpoints import BEST_NAME, is_finite, read_best, round_lines
from surreal.run.evaluation import EvaluationRound

#: Maximum size of the file of scores; together with its older part, it has twice that.
MAX_SCORES_BYTES = 64 << 20


class RoundFile:
    """Scores of one run in its folder `eval`, made if missing, with the `keep` best policies."""

    @checked
    def __init__(self, folder: Path, *, keep: PositiveInt = 1) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._keep = keep
        self._scores = folder / "scores.jsonl"
        self.newest_lines = b""  #: newest lines of the round that was added last, as they are in the file
        self.best: dict[str, Any] | None = read_best(folder)
        rounds = list(round_lines(self._scores))
        self.rounds = 1 + max((int(line["round"]) for line in rounds), default=-1)
        self.last_version = max((int(line["version"]) for line in rounds), default=0)
        kept = {int(path.stem.removeprefix("best-")) for path in folder.glob("best-*.safetensors")}
        self._kept = {
            int(line["version"]): float(line["mean_return"])
            for line in rounds
            if line["version"] in kept and is_finite(line["mean_return"])
        }

    @property
    def best_return(self) -> float | None:
        return None if self.best is None else float(self.best["mean_return"])

    @property
    def best_policy(self) -> Path:
        """The file of the best policy, relative to the folder."""
        return self.folder / "best.safetensors"

    def add(
        self,
        result: EvaluationRound,
        tensors: Mapping[str, Tensor],
        metadata: Mapping[str, Any],
        progress: Mapping[str, Any],
        *,
        has_learned: bool = True,
        reaches_goal: bool = False,
    ) -> bool:
        """Write down a round, and keep its policy if it is among the best.

        Args:
            result: the round.
            tensors: the parameters that played it.
            metadata: what the policy's file says besides its score.
            progress: how far the run was with these parameters: env steps, updates.
            has_learned: whether any update has changed the parameters. A policy that has not learned is never the best:
                a high return of it is luck.
            reaches_goal: whether the round ends the run. It then counts as the best: a round of fewer episodes may have
                a higher mean by luck.

        Returns:
            Whether this round is the best so far: it reaches the goal, or is better than all before it. One whose
            return is not finite never is.
        """
        problem = result.problem
        summary = {
            "kind": "round",
            "round": result.number,
            "time": time.time(),
            "version": result.version,
            **progress,
            "episodes": len(result.scores),
            "cut_episodes": result.cut_episodes,
            "mean_return": _plain(result.mean_return),
            "std_return": _plain(result.std_return),
            "min_return": _plain(min(score.episode_return for score in result.scores)),
            "max_return": _plain(max(score.episode_return for score in result.scores)),
            "mean_length": result.mean_length,
            **({} if result.success_ratio is None else {"success_ratio": result.success_ratio}),
            **({"problem": problem} if problem else {}),
        }
        is_better = self.best_return is None or result.mean_return > self.best_return
        is_candidate = has_learned and not problem
        is_best = is_candidate and (reaches_goal or is_better)
        summary |= {"is_best": is_best, "reaches_goal": reaches_goal}
        lines = [
            {
                "kind": "episode",
                "round": result.number,
                "version": result.version,
                "return": _plain(score.episode_return),
                "length": score.length,
                "seed": score.seed,
                "is_cut": score.is_cut,
                **({} if score.is_success is None else {"is_success": score.is_success}),
            }
            for score in result.scores
        ]
        try:
            self.newest_lines = append_lines(self._scores, [*lines, summary])
        except OSError as error:
            raise FolderError(f"{self._scores} could not be written: {error}") from error
        self.rounds = result.number + 1
        self.last_version = result.version
        content = {**metadata, "kind": "policy", "version": result.version, "score": summary}
        if is_best:
            # The policy first: best.json never names what is not there.
            save_checkpoint(self.best_policy, tensors, content, step=result.version)
            write_whole(self.folder / BEST_NAME, json.dumps(summary, indent=2) + "\n")
            self.best = summary
        if self._keep > 1 and is_candidate:
            self._keep_further(result, tensors, content)
        return is_best

    def _keep_further(self, result: EvaluationRound, tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> None:
        self._kept[result.version] = result.mean_return
        ranked = sorted(self._kept, key=lambda version: (self._kept[version], version), reverse=True)
        if result.version in ranked[: self._keep]:
            save_checkpoint(self._further(result.version), tensors, content, step=result.version)
        for version in ranked[self._keep :]:
            del self._kept[version]
            self._further(version).unlink(missing_ok=True)

    def _further(self, version: int) -> Path:
        return self.folder / f"best-{version:010d}.safetensors"


def append_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> bytes:
    """Append lines to a file of scores, all or none; returns them as written."""
    text = "".join(json.dumps(line) + "\n" for line in lines).encode()
    rotate(path, MAX_SCORES_BYTES)
    # A line cut off by a kill must not swallow the next one.
    append_whole(path, b"\n" + text if _is_cut_off(path) else text)
    return text


def _is_cut_off(path: Path) -> bool:
    if not path.exists() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _plain(value: float) -> float | None:
    """JSON has no numbers that are not finite."""
    return value if math.isfinite(value) else None
