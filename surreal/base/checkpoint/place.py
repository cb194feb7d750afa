"""Place: one folder of checkpoints, local or behind a URL, without a look into them."""

from __future__ import annotations

import logging
import os
import re

from surreal.base.checkpoint.files import is_temporary, list_names, move_file, read_file, remove_file, write_file
from surreal.base.checkpoint.ranking import SCORES_NAME, Ranking
from surreal.base.errors import CheckpointError, UnreadableError

logger = logging.getLogger(__name__)

SUFFIX = ".safetensors"
_NAME = re.compile(r"(\d{10,19})\.safetensors")
_ASIDE = "set-aside"


class Place:
    """The checkpoints of one run in one folder: `NNNNNNNNNN.safetensors`, and their scores in `scores.json`.

    Args:
        folder: a path, or a URL such as `s3://bucket/run/checkpoints`; made when the first checkpoint is saved.
        keep: how many of the largest steps to keep, >= 1; raising it takes disk.
        keep_best: how many of the best to keep beside them, >= 0.
    """

    def __init__(self, folder: str | os.PathLike[str], *, keep: int = 3, keep_best: int = 0) -> None:
        if keep < 1:
            raise ValueError(f"checkpoints_to_keep is {keep}; it must be >= 1")
        self.folder = os.fspath(folder).rstrip("/")
        self.keep = keep
        self.keep_best = keep_best

    def path_of(self, step: int) -> str:
        """Path or URL of the checkpoint of a step."""
        return f"{self.folder}/{step:010d}{SUFFIX}"

    def names(self) -> list[str]:
        """File names of the checkpoints, by rising step; other files in the folder are left alone.

        Raises:
            UnreadableError: the folder cannot be listed.
        """
        return sorted((name for name in list_names(self.folder) if _NAME.fullmatch(name)), key=step_of)

    def steps(self) -> list[int]:
        """Steps of the checkpoints, rising; raises as `names` does."""
        return [step_of(name) for name in self.names()]

    def put(self, step: int, data: bytes, ranking: Ranking | None = None) -> str:
        """Write a checkpoint, then remove those that are neither among the newest nor among the best.

        Args:
            step: >= 0; names the file and orders it. A checkpoint of the same step is replaced.
            data: its bytes.
            ranking: which are the best; None: nobody knows.

        Returns:
            Its path.

        Raises:
            CheckpointError: it could not be written; checkpoints that were there remain.
        """
        if step < 0:
            raise ValueError(f"step is {step}; it must be >= 0")
        path = self.path_of(step)
        write_file(path, data)
        self._retain(step, ranking or Ranking())
        return path

    def ranking(self) -> Ranking:
        """The scores that lie here.

        Raises:
            UnreadableError: they cannot be read.
        """
        try:
            return Ranking.from_json(read_file(f"{self.folder}/{SCORES_NAME}"))
        except UnreadableError:
            raise
        except CheckpointError:  # there are none
            return Ranking()

    def set_later_aside(self, step: int) -> str:
        """Move the checkpoints of larger steps into a folder of their own beside the others.

        Returns:
            That folder, "" if there was none later.

        Raises:
            CheckpointError: they could not be moved.
        """
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
        # After going back to an older checkpoint the newest file is not the one with the largest step: it stays too.
        try:
            names = list_names(self.folder)
            steps = sorted(step_of(name) for name in names if _NAME.fullmatch(name))
            known = self.ranking() if SCORES_NAME in names else Ranking()  # beyond what this process knows
            known.forget(just_saved)
            known.take_over(ranking)
            stay = {just_saved, *steps[-self.keep :], *known.best(steps, self.keep_best)}
            if text := known.to_json(sorted(stay)):
                write_file(f"{self.folder}/{SCORES_NAME}", text.encode())
            for step in steps:
                if step not in stay:
                    remove_file(self.path_of(step))
            for name in filter(is_temporary, names):
                remove_file(f"{self.folder}/{name}")
        except CheckpointError as error:
            logger.warning("a checkpoint was saved, but the older ones were not seen to: %s", error)


def step_of(name: str) -> int:
    """The step in the file name of a checkpoint.

    Raises:
        ValueError: it is none.
    """
    return int(name.removesuffix(SUFFIX))
