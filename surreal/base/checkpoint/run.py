"""RunCheckpoints: the checkpoints of one run, in its folder, elsewhere, or both; uploads have their own threads."""

from __future__ import annotations

import copy
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

from torch import Tensor

from surreal.base.checkpoint.format import Checkpoint, encode_checkpoint
from surreal.base.checkpoint.store import CheckpointStore, Ranking, Round, first_whole, open_checkpoint, step_of
from surreal.base.errors import CheckpointError, UnreadableError

logger = logging.getLogger(__name__)

#: Pause after the first failure of an upload, and the longest one, s.
_FIRST_PAUSE_S, _LAST_PAUSE_S = 1.0, 60.0
#: Longest pause while the run waits for an upload, s.
_END_PAUSE_S = 0.5


@dataclass(eq=False, repr=False)
class RunCheckpoints:
    """Writes into the run's folder at once, and into other places on threads; reads from any of them.

    checkpoints = RunCheckpoints(CheckpointStore("runs/demo/checkpoints"), [CheckpointStore("s3://bucket/demo")])
    found = checkpoints.newest_whole()
    path = checkpoints.save(step, tensors, metadata)
    checkpoints.finish(timeout_s)
    """

    own: CheckpointStore | None  #: store in the run's folder, on this machine's disk; None keeps no checkpoints there
    others: Sequence[CheckpointStore] = ()  #: places that may be slow or unreachable, read in this order after `own`
    _: KW_ONLY
    rounds: Callable[[], Sequence[Round]] = tuple  #: returns the rounds of evaluation, which score the checkpoints
    clock: Callable[[], float] = time.monotonic  #: seconds, monotonic

    def __post_init__(self) -> None:
        if self.own is None and not self.others:
            raise ValueError("a run's checkpoints need a place")
        self._stores = tuple(self.others) if self.own is None else (self.own, *self.others)
        self._uploads = [Uploads(store, clock=self.clock) for store in self.others]
        self._saved_s = self.clock()
        self._ranking = Ranking()
        self._steps: set[int] = set()
        self._count = 0

    @property
    def folder(self) -> str:
        """The first place."""
        return self._stores[0].folder

    @property
    def places(self) -> str:
        return " or ".join(store.folder for store in self._stores)

    def save(self, step: int, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> str:
        """Save in the run's folder now, elsewhere soon; returns the first path. Raises as `CheckpointStore.save`."""
        path = self._stores[0].path_of(step)
        data = encode_checkpoint(tensors, metadata, step=step, target=path)
        self._steps.add(step)
        self._ranking.forget(step)
        self._ranking.add(self.rounds(), self._steps)
        if self.own is not None:
            self.own.put(step, data, self._ranking)
            self._saved_s = self.clock()
        self._count += 1
        for uploads in self._uploads:
            uploads.offer(step, data, copy.deepcopy(self._ranking))
        return path

    def begin(self) -> None:
        """Read the scores and the age of existing checkpoints; rounds of parameters that were lost never count."""
        rounds = self.rounds()
        for store in self._stores_to_ask:
            try:
                self._steps.update(steps := store.steps())
                if steps and store is self.own:  # also of earlier processes, which may all have failed to save one
                    self._saved_s = self.clock() - max(0.0, time.time() - os.path.getmtime(store.path_of(steps[-1])))
                self._ranking.merge(store.ranking())
            except CheckpointError as error:
                logger.warning("%s", error)
        self._ranking.add(rounds, self._steps)
        self._ranking.skip(rounds)

    def names(self) -> list[str]:
        """List the file names of the checkpoints in all places, by rising step."""
        return sorted({name for store in self._stores for name in store.names()}, key=step_of)

    def own_steps(self) -> list[int]:
        return [] if self.own is None else self.own.steps()

    def newest_whole(self) -> Checkpoint | None:
        """Read the readable checkpoint of the largest step in any place; None if there is none.

        A checkpoint that is cut off or damaged is skipped with a warning. After this process has saved one, only the
        run's folder is read, if there is one. Raises `UnreadableError` if a place or a checkpoint cannot be read, and
        no other was found: starting from scratch would ignore checkpoints that exist.
        """
        found, problem = list[tuple[int, int, str]](), None
        for order, store in enumerate(self._stores_to_ask):
            try:
                found += [(step, -order, store.path_of(step)) for step in store.steps()]
            except UnreadableError as error:
                problem = error
                logger.warning("existing checkpoints cannot be seen: %s", error)
        newest = first_whole(path for _, _, path in sorted(found, reverse=True))
        if newest is None and problem is not None:
            raise problem
        return newest

    @property
    def newest_step(self) -> int | None:
        """The largest step of a checkpoint, which may be damaged; None if there are no checkpoints."""
        return max((step for store in self._stores_to_ask for step in store.steps()), default=None)

    def load(self, path: str | os.PathLike[str]) -> Checkpoint:
        """Read one checkpoint: a file name in any of the places, or any path or URL that `open_checkpoint` accepts."""
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
        """Whether a checkpoint belongs to this run, because it is in one of the places."""
        return any(checkpoint.path.startswith(f"{store.folder}/") for store in self._stores)

    def finish(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` for all uploads, log which did not arrive, and refuse later ones."""
        deadline_s = time.monotonic() + timeout_s
        for uploads in self._uploads:
            if problem := uploads.finish(max(0.0, deadline_s - time.monotonic())):
                kept = f"; it is in {self.own.folder}" if self.own is not None else ""
                logger.warning("the last checkpoint %s%s", problem, kept)

    def metrics(self) -> dict[str, float]:
        since_s = min([self._saved_s] * (self.own is not None) + [each.arrived_s for each in self._uploads])
        values = {"learner/checkpoints_total": float(self._count), "learner/checkpoint_age_s": self.clock() - since_s}
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
        """Places that may hold the newest checkpoint."""
        return [self.own] if self.own is not None and self._count else self._stores


class _Upload(NamedTuple):
    step: int
    data: bytes
    ranking: Ranking
    made_s: float


class Uploads:
    """Sends checkpoints to a place that may be slow or unreachable, on a thread.

        uploads.offer(step, data, ranking)   # never waits
        uploads.finish(timeout_s)            # once, at the end

    At most one checkpoint is sent and one waits; a newer one replaces the one that waits. A failed upload is repeated
    with growing pauses until it arrives or is replaced.
    """

    def __init__(self, place: CheckpointStore, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.place = place
        #: sent: checkpoints that arrived
        #: failures: failed attempts
        #: replaced: checkpoints that newer ones replaced before they arrived
        self.sent = self.failures = self.replaced = 0
        self.last_s = 0.0  #: duration of the last successful upload, s
        self._clock = clock
        self.arrived_s = clock()  #: when the newest one that arrived was made; before the first: when this was
        self._random = random.Random()
        self._waiting: _Upload | None = None
        self._sending: _Upload | None = None
        self._problem = ""
        self._pause_s = 0.0
        self._due_s = -float("inf")
        self._is_ending = self._is_over = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def offer(self, step: int, data: bytes, ranking: Ranking) -> None:
        """Queue a checkpoint without waiting; the first one starts the thread."""
        with self._changed:
            if self._is_over:
                return
            if self._waiting is not None:
                self.replaced += 1
            self._waiting = _Upload(step, data, ranking, self._clock())
            if self._thread is None:
                # Not supervised: an upload that takes minutes does not hang.
                name = f"checkpoint-uploads {self.place.folder}"
                self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def finish(self, timeout_s: float) -> str:
        """Wait for pending uploads, then end the thread; returns why the newest checkpoint did not arrive, or ""."""
        deadline_s = self._clock() + timeout_s
        with self._changed:
            self._is_ending, self._due_s = True, -float("inf")
            self._changed.notify_all()
            while self._is_busy and (remaining_s := deadline_s - self._clock()) > 0:
                self._changed.wait(remaining_s)
            late = self._waiting or self._sending
            self._is_over, self._waiting = True, None
            self._changed.notify_all()
        if late is None:
            return ""
        return f"{self.place.path_of(late.step)} did not arrive: {self._problem or 'its upload takes too long'}"

    @property
    def is_pending(self) -> bool:
        with self._changed:
            return self._is_busy

    def step(self) -> None:
        """Send the waiting checkpoint if it is due; otherwise wait for that, at most a second."""
        with self._changed:
            wait_s = 1.0 if self._waiting is None else self._due_s - self._clock()
            if self._waiting is None or wait_s > 0:
                self._changed.wait(min(wait_s, 1.0))
                return
            upload = self._sending = self._waiting
            self._waiting = None
        began_s = self._clock()
        try:
            self.place.put(upload.step, upload.data, upload.ranking)
        except Exception as error:  # no failure may end learning
            self._failed(upload, error)
            return
        duration_s = self._clock() - began_s
        logger.info("checkpoint %s arrived after %.1f s", self.place.path_of(upload.step), duration_s)
        with self._changed:
            self.sent += 1
            self.last_s, self.arrived_s, self._pause_s, self._problem = duration_s, upload.made_s, 0.0, ""
            self._sending = None
            self._changed.notify_all()

    @property
    def _is_busy(self) -> bool:
        return self._waiting is not None or self._sending is not None

    def _loop(self) -> None:
        while not self._is_over:
            self.step()

    def _failed(self, upload: _Upload, error: Exception) -> None:
        if not self._problem:  # once, until one arrives
            logger.warning("%s; learning continues, and the upload is repeated", error)
        with self._changed:
            self.failures += 1
            self._problem, self._sending = str(error), None
            self._pause_s = min(2 * self._pause_s, _LAST_PAUSE_S) or _FIRST_PAUSE_S
            pause_s = min(self._pause_s, _END_PAUSE_S) if self._is_ending else self._pause_s
            self._due_s = self._clock() + pause_s * self._random.uniform(0.5, 1.0)
            if self._waiting is None:
                self._waiting = upload
            else:
                self.replaced += 1
            self._changed.notify_all()
