"""`RankReplay`: a rank's replay, which returns a batch when all ranks have one.

Before each update the ranks tell each other in one short exchange what they must agree on: whether all have a batch,
and, by the word of rank 0, the env steps of the run, the newest version, whether its state is to be taken over, and
whether that was all. So no rank waits in an update for one without a batch, or for one that has ended.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray

from surreal.base.errors import DivergedError, RankError, StoppedError
from surreal.base.types import Batch, SampleInfo, TrajectoryBatch
from surreal.learner import GradientLearner, Learner
from surreal.learner.stepping.ranks import Ranks
from surreal.replay import Replay

logger = logging.getLogger(__name__)

#: A rank without a batch lets the others continue after this, s.
_WAIT_S = 0.05


class _Word(NamedTuple):
    """A message between ranks, summed over them; the last fields are rank 0's alone."""

    ready: float  #: ranks that have a batch
    ending: float  #: ranks that are to end
    again: float  #: 1 where all take over rank 0's state
    global_step: float
    version: float


@dataclass(eq=False)
class RankReplay:
    """A replay as its rank's learner sees it, and the intake of its session."""

    ranks: Ranks
    replay: Replay[Any]
    stop: Callable[[], bool] = lambda: False  #: asked on other ranks than rank 0, whether this process was told to end
    #: asked on rank 0, for the version of the parameters that were published last
    version: Callable[[], int] = lambda: 0

    is_stepped = False

    def __post_init__(self) -> None:
        self._committed = -1
        self._global_step = 0
        self._is_current = False
        self._is_over = False
        self._learner: Learner | None = None
        self._failure: DivergedError | None = None

    # -- what the learner needs --------------------------------------------------------------------------------------

    @property
    def global_step(self) -> int:
        return self._global_step

    @property
    def wants_priorities(self) -> bool:
        return self.replay.wants_priorities

    def update_priorities(self, sample_info: SampleInfo, priorities: NDArray[Any]) -> None:
        self.replay.update_priorities(sample_info, priorities)

    # -- what the session calls --------------------------------------------------------------------------------------

    def attach(self, learner: Learner) -> None:
        """Make a learner, whose replay this is and which must be a `GradientLearner`, one of the ranks."""
        if not isinstance(learner, GradientLearner):
            raise ValueError(f"the learner is a {type(learner).__name__}; it must be a GradientLearner")
        learner.learn_with(self.ranks)
        self._learner = learner

    def take_in(self) -> None:
        """Start the threads of this rank's replay."""
        self.replay.start_threads()

    def next_batch(self, timeout_s: float) -> Batch | TrajectoryBatch | None:
        """Return the next batch, when all ranks have one; None if one had none in time. All ranks call it in turn.
        Raises `StoppedError` if the ranks are to end, `RankError` if one is gone, `DivergedError` if this rank's
        learner diverged, and that of rank 0 did not.
        """
        word = self._exchange(is_ready=self.replay.has_batch(min(timeout_s, _WAIT_S)), is_ending=self.stop())
        if word.ending:
            self._is_over = True
            raise StoppedError("the learner's ranks are to end")
        if self._failure is not None and not word.again:
            raise self._failure
        self._failure = None
        if word.ready < self.ranks.count:
            return None
        batch: Batch | TrajectoryBatch | None = self.replay.dequeue(timeout_s)
        if batch is not None and word.again:
            self._take_over(batch)
        return batch

    def take_over_again(self) -> None:
        """Make all ranks take over the changed state of rank 0's learner; for rank 0."""
        self._is_current = False

    def after(self, error: DivergedError) -> None:
        """Record that the learner diverged; for ranks other than rank 0, which decides the reaction."""
        self._failure = error

    def end(self) -> None:
        """Tell the other ranks, which are between two updates as well, to end; for rank 0."""
        if self._is_over or self.ranks.is_broken:
            return
        self._is_over = True
        try:
            self._exchange(is_ready=False, is_ending=True)
        except RankError as error:
            logger.warning("the end of the learner's ranks: %s", error)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _exchange(self, *, is_ready: bool, is_ending: bool) -> _Word:
        mine = _Word(float(is_ready), float(is_ending), 0.0, 0.0, 0.0)
        if self.ranks.is_first:
            self._global_step = max(self._global_step, self.replay.global_step)
            mine = mine._replace(
                again=float(not self._is_current), global_step=float(self._global_step), version=float(self.version())
            )
        word = _Word(*self.ranks.sum(mine))
        self._global_step = int(word.global_step)
        if not self.ranks.is_first and word.version > self._committed:
            # What this rank has handed out was learned from before that version was published.
            self._committed = int(word.version)
            self.replay.commit(self._committed)
            if self._learner is not None:
                self._learner.model.version = self._committed
        return word

    def _take_over(self, batch: Batch | TrajectoryBatch) -> None:
        """Take over all that a checkpoint of rank 0 would keep; `batch` gives the model its shape, if it has none."""
        if self._learner is None:
            raise ValueError("no learner was attached")
        self._learner.prepare(batch)
        self._is_current = True
        if self.ranks.is_first:
            found = self._learner.state_dict()
            kinds = {name: [str(each.dtype), list(each.shape)] for name, each in found["tensors"].items()}
            self.ranks.hand_out(json.dumps({"state": found["state"], "kinds": kinds}).encode())
            for tensor in found["tensors"].values():
                self._copy(tensor.detach().cpu().contiguous())
            return
        found = json.loads(self.ranks.hand_out(b""))
        tensors = {
            name: self._copy(torch.zeros(shape, dtype=getattr(torch, kind.removeprefix("torch."))))
            for name, (kind, shape) in found["kinds"].items()
        }
        self._learner.load_state_dict({"tensors": tensors, "state": found["state"]})

    def _copy(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.numel():
            self.ranks.copy_first(tensor.reshape(-1).view(torch.uint8))
        return tensor
