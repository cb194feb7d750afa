"""`CheckpointStore`: the checkpoints of one run in one folder, local or behind a URL, with their scores (`Ranking`).

Methods that read or write tensors import torch when called: the launcher, which only lists steps, does not need it.
"""

from __future__ import annotations

import json
import logging
import math
import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from surreal.base.checkpoint.files import is_temporary, list_names, move_file, read_file, remove_file, write_file
from surreal.base.errors import CheckpointError, UnreadableError
from surreal.base.ranges import NonNegativeInt, PositiveInt, checked

if TYPE_CHECKING:
    from torch import Tensor

    from surreal.base.checkpoint.format import Checkpoint

logger = logging.getLogger(__name__)

SUFFIX = ".safetensors"
_NAME = re.compile(r"(\d{10,19})\.safetensors")
_ASIDE = "set-aside"


class CheckpointStore:
    """The checkpoints of one run in one folder: `NNNNNNNNNN.safetensors`, and their scores in `scores.json`.

    Args:
        folder: a path, or a URL such as `s3://bucket/run/checkpoints`; made when the first checkpoint is saved.
        keep: number of the largest steps to keep; raising it needs disk space.
        keep_best: number of the best to keep as well.
    """

    @checked
    def __init__(self, folder: str | os.PathLike[str], *, keep: PositiveInt = 3, keep_best: NonNegativeInt = 0) -> None:
        self.folder = os.fspath(folder).rstrip("/")
        self.keep = keep
        self.keep_best = keep_best

    def path_of(self, step: int) -> str:
        return f"{self.folder}/{step:010d}{SUFFIX}"

    def names(self) -> list[str]:
        """List the file names of the checkpoints, by rising step."""
        return sorted((name for name in list_names(self.folder) if _NAME.fullmatch(name)), key=step_of)

    def steps(self) -> list[int]:
        """List the steps of the checkpoints, rising; raises as `names`."""
        return [step_of(name) for name in self.names()]

    @property
    def newest_step(self) -> int | None:
        """The largest step of a checkpoint, which may be damaged; None if there are no checkpoints."""
        return max(self.steps(), default=None)

    def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> str:
        """Write a checkpoint, then remove the oldest beyond `keep`; returns its path.

        Args:
            step: >= 0; names the file and orders it. A checkpoint of the same step is replaced.
            tensors: on any device.
            metadata: JSON-able, with string keys; NaN and infinities are kept.

        Raises:
            CheckpointError: it could not be written; existing checkpoints remain.
            DivergedError: a tensor holds nan or an infinity.
        """
        from surreal.base.checkpoint.format import encode_checkpoint

        return self.put(step, encode_checkpoint(tensors, metadata, step=step, target=self.path_of(step)))

    def put(self, step: int, data: bytes, ranking: Ranking | None = None) -> str:
        """Write the bytes of a checkpoint, then remove those that are neither among the newest nor the best."""
        if step < 0:
            raise ValueError(f"step is {step}; it must be >= 0")
        path = self.path_of(step)
        write_file(path, data)
        self._retain(step, ranking or Ranking())
        return path

    def newest_whole(self) -> Checkpoint | None:
        """Read the readable checkpoint of the largest step; None without one. Raises `UnreadableError` if all are bad.

        A checkpoint that is cut off or damaged is skipped with a warning.
        """
        return first_whole(self.path_of(step) for step in reversed(self.steps()))

    def best_whole(self) -> Checkpoint | None:
        """Read the readable checkpoint of the best score; None if there is none. Raises as `newest_whole`."""
        steps = self.steps()
        return first_whole(self.path_of(step) for step in self.ranking().best(steps, len(steps)))

    def load(self, path: str | os.PathLike[str]) -> Checkpoint:
        """Read one checkpoint: a file name in this folder, or any path or URL that `open_checkpoint` accepts."""
        text = os.fspath(path)
        return open_checkpoint(text if "/" in text or os.sep in text else f"{self.folder}/{text}")

    def ranking(self) -> Ranking:
        try:
            return Ranking.from_json(read_file(f"{self.folder}/{SCORES_NAME}"))
        except UnreadableError:
            raise
        except CheckpointError:  # the file is missing
            return Ranking()

    def set_later_aside(self, step: int) -> str:
        """Move the checkpoints of larger steps into a new folder next to the others; returns that folder, or ""."""
        later = [other for other in self.steps() if other > step]
        if not later:
            return ""
        taken, number = set(list_names(self.folder)), 1
        while f"{_ASIDE}-{number}" in taken:
            number += 1
        aside = f"{self.folder}/{_ASIDE}-{number}"
        for other in reversed(later):
            move_file(self.path_of(other), f"{aside}/{other:010d}{SUFFIX}")
        return aside

    def _retain(self, just_saved: int, ranking: Ranking) -> None:
        # After a return to an older checkpoint, the newest file does not have the largest step: it stays too.
        try:
            names = list_names(self.folder)
            steps = sorted(step_of(name) for name in names if _NAME.fullmatch(name))
            known = self.ranking() if SCORES_NAME in names else Ranking()
            known.forget(just_saved)
            known.merge(ranking)
            stay = {just_saved, *steps[-self.keep :], *known.best(steps, self.keep_best)}
            if text := known.to_json(sorted(stay)):
                write_file(f"{self.folder}/{SCORES_NAME}", text.encode())
            for step in steps:
                if step not in stay:
                    remove_file(self.path_of(step))
            for name in filter(is_temporary, names):
                remove_file(f"{self.folder}/{name}")
        except CheckpointError as error:
            logger.warning("a checkpoint was saved, but older ones could not be removed: %s", error)


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read the checkpoint at a path or URL; `FOLDER/latest` and `FOLDER/best` read the newest or best whole one."""
    from surreal.base.checkpoint.format import load_checkpoint

    text = os.fspath(path)
    folder, _, word = text.rpartition("/")
    if not folder or word not in ("latest", "best"):
        return load_checkpoint(text)
    store = CheckpointStore(folder)
    found = store.newest_whole() if word == "latest" else store.best_whole()
    if found is None:
        lacking = "holds no whole checkpoint" if word == "latest" else "holds no whole checkpoint with a score"
        raise CheckpointError(f"{folder} {lacking}")
    return found


def first_whole(paths: Iterable[str]) -> Checkpoint | None:
    """Read the first whole checkpoint, with a warning for each before it; raises `UnreadableError` if none is left."""
    from surreal.base.checkpoint.format import load_checkpoint

    problem: UnreadableError | None = None
    for path in paths:
        try:
            return load_checkpoint(path)
        except CheckpointError as error:
            logger.warning("skipped a checkpoint that cannot be used: %s", error)
            problem = error if isinstance(error, UnreadableError) else problem
    if problem is not None:
        raise problem
    return None


def step_of(name: str) -> int:
    """Return the step in a checkpoint's file name, or raise `ValueError`."""
    return int(name.removesuffix(SUFFIX))


SCORES_NAME = "scores.json"


class Round(NamedTuple):
    """A round of the evaluation."""

    time: float  #: its end, s since 1970; unique in a run
    updates: int  #: of the parameters that it evaluated
    mean_return: float


class Score(NamedTuple):
    """The score of a checkpoint."""

    mean_return: float
    rounds: int  #: number of rounds in the mean


class Ranking:
    """Scores of the checkpoints of one run, by their steps, which are updates."""

    def __init__(self) -> None:
        self.last_time = -math.inf  #: rounds up to this time were counted, s since 1970
        self._scores: dict[int, Score] = {}

    def add(self, rounds: Iterable[Round], steps: Collection[int]) -> None:
        """Count each new round of the evaluation for the checkpoint nearest to it, the later one of two; `steps` are
        those of all checkpoints that the run saved, removed ones included.

        A round whose parameters are newer than all checkpoints waits for a later call, and so do those after it.
        """
        newest = max(steps, default=-1)
        for done in sorted(rounds):
            if done.time <= self.last_time:
                continue
            if done.updates > newest:
                return
            self.last_time = done.time
            step = min(steps, key=lambda step: (abs(step - done.updates), -step))
            mean, count = self._scores.get(step, Score(0.0, 0))
            self._scores[step] = Score(mean + (done.mean_return - mean) / (count + 1), count + 1)

    def skip(self, rounds: Iterable[Round]) -> None:
        """Never count these rounds: the run did not continue from their parameters."""
        self.last_time = max((done.time for done in rounds), default=self.last_time)

    def forget(self, step: int) -> None:
        self._scores.pop(step, None)

    def best(self, steps: Iterable[int], count: int) -> list[int]:
        """Choose the best of some checkpoints that have scores, best first; the later one of equals."""
        scored = [step for step in steps if step in self._scores]
        return sorted(scored, key=lambda step: (self._scores[step].mean_return, step), reverse=True)[:count]

    def score(self, step: int) -> Score | None:
        return self._scores.get(step)

    def merge(self, other: Ranking) -> None:
        """Add the scores of another ranking of the same run; the ranking that saw later rounds wins."""
        newer = other.last_time > self.last_time
        self._scores = {**self._scores, **other._scores} if newer else {**other._scores, **self._scores}
        self.last_time = max(self.last_time, other.last_time)

    def to_json(self, steps: Iterable[int]) -> str:
        scores = {f"{step:010d}": self._scores[step]._asdict() for step in steps if step in self._scores}
        return json.dumps({"last_time": self.last_time, "scores": scores}, indent=2) + "\n" if scores else ""

    @classmethod
    def from_json(cls, text: str | bytes) -> Ranking:
        """Decode what `to_json` wrote; damaged text gives a ranking without scores."""
        ranking = cls()
        try:
            content: Any = json.loads(text)
            scores = {int(name): _checked(Score(**score)) for name, score in content["scores"].items()}
            ranking.last_time = float(content["last_time"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return cls()
        ranking._scores = scores
        return ranking


def _checked(score: Score) -> Score:
    if not (math.isfinite(score.mean_return) and score.rounds >= 1):
        raise ValueError(f"{score} is not a score")
    return score
