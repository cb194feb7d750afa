"""CheckpointStore: one place with the content of its checkpoints."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from surreal.base.checkpoint.format import Checkpoint, encode_checkpoint, load_checkpoint
from surreal.base.checkpoint.place import Place
from surreal.base.errors import CheckpointError, UnreadableError

logger = logging.getLogger(__name__)


class CheckpointStore(Place):
    """Saves checkpoints in one folder, and finds the newest or the best that is whole; see `Place` for arguments."""

    def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> str:
        """Write a checkpoint, then remove the oldest beyond `keep`.

        Args:
            step: >= 0; names the file and orders it. A checkpoint of the same step is replaced.
            tensors: on any device; written as they are now.
            metadata: JSON-able, with string keys; NaN and infinities are kept.

        Returns:
            The file's path.

        Raises:
            CheckpointError: it could not be written; checkpoints that were there remain.
            DivergedError: a tensor holds nan or an infinity.
        """
        if step < 0:
            raise ValueError(f"step is {step}; it must be >= 0")
        return self.put(step, encode_checkpoint(tensors, metadata, step=step, target=self.path_of(step)))

    def newest_whole(self) -> Checkpoint | None:
        """Read the checkpoint of the largest step that can be read; None if there is none.

        One that was cut off or damaged is passed over with a warning.

        Raises:
            UnreadableError: the folder cannot be listed, or there are only checkpoints that cannot be read.
        """
        return first_whole(self.path_of(step) for step in reversed(self.steps()))

    def best_whole(self) -> Checkpoint | None:
        """Read the checkpoint of the best score that can be read; None if there is none. Raises as `newest_whole`."""
        steps = self.steps()
        return first_whole(self.path_of(step) for step in self.ranking().best(steps, len(steps)))

    @property
    def newest_step(self) -> int | None:
        """The largest step that there is a checkpoint of, which may be damaged; None without any."""
        return max(self.steps(), default=None)

    def load(self, path: str | os.PathLike[str]) -> Checkpoint:
        """Read one checkpoint: a file name in this folder, or any path or URL, as `open_checkpoint` takes it.

        Raises:
            CheckpointError: it is missing, cut off, or no checkpoint.
        """
        text = os.fspath(path)
        return open_checkpoint(text if "/" in text or os.sep in text else f"{self.folder}/{text}")


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint: that of a path or URL, or of `FOLDER/latest` and `FOLDER/best` the newest or best whole one.

    Raises:
        CheckpointError: it is missing, cut off, or no checkpoint; or there is none such in that folder.
    """
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
    """Read the first checkpoint that is whole; those before it are passed over with a warning.

    Raises:
        UnreadableError: none is whole that can be read, and one cannot be read.
    """
    problem: UnreadableError | None = None
    for path in paths:
        try:
            return load_checkpoint(path)
        except CheckpointError as error:
            logger.warning("passed over a checkpoint that cannot be used: %s", error)
            problem = error if isinstance(error, UnreadableError) else problem
    if problem is not None:
        raise problem
    return None
