"""RunCheckpoints: the checkpoints of one run, in its folder, elsewhere, or both."""

from __future__ import annotations

import copy
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from surreal.base.checkpoint.format import Checkpoint, encode_checkpoint
from surreal.base.checkpoint.place import step_of
from surreal.base.checkpoint.ranking import Ranking, Round
from surreal.base.checkpoint.store import CheckpointStore, first_whole, open_checkpoint
from surreal.base.checkpoint.uploads import Uploads
from surreal.base.errors import CheckpointError, UnreadableError

logger = logging.getLogger(__name__)


class RunCheckpoints:
    """Writes into the run's folder at once, and into all other places on threads of their own; reads from any of them.

        checkpoints = RunCheckpoints(CheckpointStore("runs/demo/checkpoints"), [CheckpointStore("s3://bucket/demo")])
        found = checkpoints.newest_whole()
        path = checkpoints.save(step, tensors, metadata)
        checkpoints.finish(timeout_s)

    Args:
        own: in the run's folder, on this machine's disk; None: nothing is kept there.
        others: places that may be slow or away, asked in this order after `own`.
        rounds: gives the rounds of the run's evaluation, the score of checkpoints.

    Raises:
        ValueError: there is no place at all.
    """

    def __init__(
        self,
        own: CheckpointStore | None,
        others: Sequence[CheckpointStore] = (),
        *,
        rounds: Callable[[], Sequence[Round]] = tuple,
    ) -> None:
        if own is None and not others:
            raise ValueError("a run's checkpoints need a place")
        self._own = own
        self._others = tuple(others)
        self._rounds = rounds
        self._uploads = [Uploads(store) for store in others]
        self._ranking = Ranking()
        self._steps: set[int] = set()
        self._count = 0

    @property
    def folder(self) -> str:
        """The first place."""
        return self._stores[0].folder

    @property
    def places(self) -> str:
        """All places, for people."""
        return " or ".join(store.folder for store in self._stores)

    def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> str:
        """Write a checkpoint: into the run's folder now, elsewhere as soon as may be.

        Args:
            step: >= 0; names the file and orders it. A checkpoint of the same step is replaced.
            tensors: on any device; written as they are now.
            metadata: JSON-able, with string keys; NaN and infinities are kept.

        Returns:
            Where it is, or will be first.

        Raises:
            CheckpointError: it could not be written into the run's folder; checkpoints that were there remain.
            DivergedError: a tensor holds nan or an infinity.
        """
        path = self._stores[0].path_of(step)
        data = encode_checkpoint(tensors, metadata, step=step, target=path)
        self._steps.add(step)
        self._ranking.forget(step)
        self._ranking.add(self._rounds(), self._steps)
        if self._own is not None:
            self._own.put(step, data, self._ranking)
        self._count += 1
        for uploads in self._uploads:
            uploads.offer(step, data, copy.deepcopy(self._ranking))
        return path

    def begin(self) -> None:
        """Know the scores of the checkpoints that are there; rounds of parameters that were lost never count."""
        rounds = self._rounds()
        for store in self._stores_to_ask:
            try:
                self._steps.update(store.steps())
                self._ranking.take_over(store.ranking())
            except CheckpointError as error:
                logger.warning("%s", error)
        self._ranking.add(rounds, self._steps)
        self._ranking.pass_over(rounds)

    def names(self) -> list[str]:
        """File names of the checkpoints in all places, by rising step.

        Raises:
            CheckpointError: a place cannot be listed.
        """
        return sorted({name for store in self._stores for name in store.names()}, key=step_of)

    def own_steps(self) -> list[int]:
        """Steps of the checkpoints in the run's folder, rising."""
        return [] if self._own is None else self._own.steps()

    def newest_whole(self) -> Checkpoint | None:
        """Read the checkpoint of the largest step that can be read, wherever it is; None if there is none.

        One that was cut off or damaged is passed over with a warning. When this process has saved one, only the run's
        folder is asked, if there is one: it is there.

        Raises:
            UnreadableError: a place or a checkpoint cannot be read, and there is no other: whoever began anew now
                would do so beside checkpoints that are only out of sight.
        """
        found, problem = list[tuple[int, int, str]](), None
        for order, store in enumerate(self._stores_to_ask):
            try:
                found += [(step, -order, store.path_of(step)) for step in store.steps()]
            except UnreadableError as error:
                problem = error
                logger.warning("checkpoints that are there are not seen: %s", error)
        newest = first_whole(path for _, _, path in sorted(found, reverse=True))
        if newest is None and problem is not None:
            raise problem
        return newest

    @property
    def newest_step(self) -> int | None:
        """The largest step that there is a checkpoint of, which may be damaged; None without any.

        Raises:
            CheckpointError: a place cannot be listed.
        """
        return max((step for store in self._stores_to_ask for step in store.steps()), default=None)

    def load(self, path: str | os.PathLike[str]) -> Checkpoint:
        """Read one checkpoint: a file name in any of the places, or any path or URL, as `open_checkpoint` takes it.

        Raises:
            CheckpointError: it is missing, cut off, or no checkpoint.
        """
        text = os.fspath(path)
        if "/" in text or os.sep in text:
            return open_checkpoint(text)
        problems = []
        for store in self._stores:
            try:
                return store.load(text)
            except CheckpointError as error:
                problems.append(str(error))
        raise CheckpointError("; ".join(problems))

    def is_own(self, checkpoint: Checkpoint) -> bool:
        """Whether a checkpoint lies in one of the places: whether it is of this run."""
        return any(checkpoint.path.startswith(f"{store.folder}/") for store in self._stores)

    def finish(self, timeout_s: float) -> None:
        """Wait for uploads, and say which did not arrive; nothing can be sent after it.

        Args:
            timeout_s: of all of them together.
        """
        deadline_s = time.monotonic() + timeout_s
        for uploads in self._uploads:
            if problem := uploads.finish(max(0.0, deadline_s - time.monotonic())):
                kept = f"; it is in {self._own.folder}" if self._own is not None else ""
                logger.warning("the last checkpoint %s%s", problem, kept)

    def metrics(self) -> dict[str, float]:
        """What was saved, and what became of the uploads of all places."""
        values = {"learner/checkpoints_total": float(self._count)}
        if self._uploads:
            values |= {
                "learner/checkpoint_uploads_total": float(sum(each.sent for each in self._uploads)),
                "learner/checkpoint_upload_failures_total": float(sum(each.failures for each in self._uploads)),
                "learner/checkpoint_uploads_replaced_total": float(sum(each.replaced for each in self._uploads)),
                "learner/checkpoint_uploads_pending_count": float(sum(each.is_pending for each in self._uploads)),
                "learner/checkpoint_upload_s": max(each.last_s for each in self._uploads),
            }
        return values

    @property
    def _stores_to_ask(self) -> Sequence[CheckpointStore]:
        """Where the newest checkpoint can be."""
        return [self._own] if self._own is not None and self._count else self._stores

    @property
    def _stores(self) -> tuple[CheckpointStore, ...]:
        return self._others if self._own is None else (self._own, *self._others)
