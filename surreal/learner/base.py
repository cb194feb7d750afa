"""The base of all learners.

Who calls it:

    learner = DQNLearner(model, replay)
    replay.start_threads()
    for i, batch in replay.batch_iterator():
        learner.optimize(i, batch)
        if i % 10 == 0:
            broadcaster.broadcast(model)

`optimize` is the public call: it counts, shapes the model by the first batch, moves tensors, times, collects metrics.
A subclass must say in `learn` what one update does. What it needs beside the model it makes in `build`; what of that
a checkpoint keeps, it gives in `parts` and takes in `load_part`.
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, cast

from torch import Tensor

from surreal.checkpoint import check_tensors
from surreal.errors import CheckpointError
from surreal.learner.devices import BatchMover, resolve_device
from surreal.specs import ObsSpec
from surreal.types import Batch, Obs, TrajectoryBatch
from surreal.utils.pytorch import Module

logger = logging.getLogger(__name__)


class Learner(ABC):
    """Improves `model`, one batch at a time.

    All of it runs on the caller's thread. The model's lock is held only where parameters change.

    Attributes:
        updates: done so far, restored ones included.
        is_ready: whether the model has its shape and `build` was called.
        optional_parts: those of `parts` that a checkpoint may be without: an optimizer is empty before its first step.

    Args:
        model: may still be without a shape; the first batch, or a checkpoint, gives it one.
        replay: where the batches come from. Used if it has them: `global_step` (schedules by env steps),
            `update_priorities(sample_info, priorities)` and `wants_priorities` (True unless it says otherwise).
        device: auto, cpu or cuda; the model is moved there.
        metrics_interval: updates between two readings of the metrics, >= 1. Reading waits for the device, so raising it
            makes a GPU faster and the metrics rarer.
    """

    #: What it can learn from, of what replays say that they hand out.
    takes: ClassVar[frozenset[str]] = frozenset({"transitions", "sequences", "trajectories"})
    optional_parts: frozenset[str] = frozenset({"optimizer"})

    def __init__(
        self, model: Module, replay: object | None = None, *, device: str = "cpu", metrics_interval: int = 100
    ) -> None:
        if metrics_interval < 1:
            raise ValueError(f"metrics_interval is {metrics_interval}; it must be >= 1")
        self.model = model
        self.replay = replay
        self.device = resolve_device(device)
        self.metrics_interval = metrics_interval
        self.updates = 0
        self.is_ready = False
        self._move = BatchMover(self.device) if self.device.type != "cpu" else None
        self._global_step = 0
        self._readings: dict[str, float] = {}
        self._timed = 0, 0.0  # updates, and the seconds they took
        self._told = 0, 0.0  # as the telemetry's thread saw them last
        #: Whether `learn` should call `send_priorities`.
        self.wants_priorities = hasattr(replay, "update_priorities") and bool(getattr(replay, "wants_priorities", True))

    def optimize(self, i: int, batch: Batch | TrajectoryBatch) -> dict[str, float]:
        """Do one update.

        Args:
            i: number of the batch, as `batch_iterator` gives it.
            batch: B transitions, or B trajectories [T, B], on any device.

        Returns:
            The metrics as last read, at most `metrics_interval` updates old.
        """
        started = time.perf_counter()
        if not self.is_ready:
            self._prepare(batch)
        if self._move is not None:
            batch = self._move(batch)
        metrics = self.learn(i, batch)
        if self.is_metrics_due:
            self._read(metrics)
        self.updates += 1
        self._timed = self._timed[0] + 1, self._timed[1] + time.perf_counter() - started
        return self._readings

    @abstractmethod
    def learn(self, i: int, batch: Any) -> Mapping[str, Tensor | float]:
        """Do one update of the model from `batch`, whose tensors are on `self.device`.

        It is what the replay hands out: a `Batch`, or a `TrajectoryBatch` of a replay of trajectories. A subclass says
        in its signature which of them it takes.

        Metrics are scalars under bare names; they are read only when `is_metrics_due`, so the rest of the time a
        tensor costs nothing but its making, and leaving one out is fine.
        """

    def build(self) -> None:
        """Make optimizer and further networks: called once, when the model has its shape and is on its device."""

    def parts(self) -> dict[str, dict[str, Tensor]]:
        """Give the tensors that a checkpoint keeps beside the model's: part -> name -> live tensor."""
        return {}

    def expected_parts(self) -> dict[str, dict[str, Tensor]]:
        """Give `parts` as a checkpoint should have them: names, shapes and dtypes, whatever the values."""
        return self.parts()

    def load_part(self, part: str, tensors: dict[str, Tensor]) -> None:
        """Take over the tensors of one of the `parts`, already checked; empty if it is one of `optional_parts`."""
        raise NotImplementedError(f"{type(self).__name__} has the part {part!r}, but no load_part")

    @property
    def is_metrics_due(self) -> bool:
        """Whether metrics of the running update will be read: ask before computing one that is not needed otherwise."""
        return self.updates % self.metrics_interval == 0

    @property
    def global_step(self) -> int:
        """Env steps of the whole run, as far as known here; never decreases."""
        self._global_step = max(self._global_step, int(getattr(self.replay, "global_step", 0)))
        return self._global_step

    def on_global_step(self, step: int) -> None:
        """Tell how many env steps the run has done, if the replay does not know."""
        self._global_step = max(self._global_step, step)

    @property
    def version(self) -> int:
        """Version of the parameters as last broadcast; the broadcaster gives versions, not the learner."""
        return self.model.version

    def metrics(self) -> dict[str, float]:
        """What the telemetry sends, under full names."""
        values = {f"learner/{name}": value for name, value in self._readings.items()}
        values["learner/updates_count"] = float(self.updates)
        told, self._told = self._told, self._timed
        if self._told[0] > told[0]:
            values["learner/optimize_ms"] = 1e3 * (self._told[1] - told[1]) / (self._told[0] - told[0])
        return values

    def send_priorities(self, batch: Batch, td_error: Tensor) -> None:
        """Give the replay |TD error| of the rows of `batch`: [B] float32, >= 0. Waits for the device."""
        priorities = td_error.detach().abs().cpu().numpy()
        cast(Any, self.replay).update_priorities(batch.sample_info, priorities)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit: `{"tensors": {name: Tensor}, "state": JSON-able}`.

        The tensors are the live ones, not copies: write them before the next update.

        Raises:
            CheckpointError: there is nothing to keep yet, for the model has no shape.
        """
        if not self.is_ready:
            if not self.model.is_materialized:
                raise CheckpointError("the model has no shape before its first batch, so there is nothing to save yet")
            self._become_ready()
        tensors = {f"model/{name}": tensor for name, tensor in self.model.tensors().items()}
        for part, current in self.parts().items():
            tensors.update({f"{part}/{name}": tensor for name, tensor in current.items()})
        state = {
            "learner": type(self).__name__,
            "updates": self.updates,
            "global_step": self.global_step,
            "version": self.version,
        }
        return {"tensors": tensors, "state": state}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave; no value changes unless all of it fits.

        The model's version becomes the checkpoint's, so a broadcaster can propose a higher one.

        Raises:
            CheckpointError: it is of another learner or another model; names the first tensor that differs.
        """
        tensors: Mapping[str, Tensor] = state_dict["tensors"]
        state: Mapping[str, Any] = state_dict["state"]
        if state.get("learner") != type(self).__name__:
            raise CheckpointError(f"the checkpoint is of a {state.get('learner')}, not of a {type(self).__name__}")
        try:
            updates, global_step, version = (int(state[name]) for name in ("updates", "global_step", "version"))
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError("the checkpoint's learner state has no updates, global_step or version") from error
        split: dict[str, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            part, _, name = key.partition("/")
            split.setdefault(part, {})[name] = tensor
        stored_model = split.pop("model", {})
        if not self.model.is_materialized:
            self.model.materialize_from(stored_model)
        check_tensors(self.model.tensors(), stored_model, "model")
        if not self.is_ready:
            self._become_ready()
        expected_parts = self.expected_parts()
        for part, expected in expected_parts.items():
            if split.get(part) or part not in self.optional_parts:
                check_tensors(expected, split.get(part, {}), part)
        self.model.load_tensors(stored_model, version)
        for part in expected_parts:
            self.load_part(part, split.get(part, {}))
        self.updates = updates
        self._global_step = global_step

    def _prepare(self, batch: Batch | TrajectoryBatch) -> None:
        if not self.model.is_materialized:
            first = (0, 0) if isinstance(batch, TrajectoryBatch) else (0,)
            self.model.materialize(ObsSpec.from_obs(_row(batch.obs, first)))
        self._become_ready()

    def _become_ready(self) -> None:
        self.model.to(self.device)
        self.build()
        self.is_ready = True

    def _read(self, metrics: Mapping[str, Tensor | float]) -> None:
        self._readings = {name: float(value) for name, value in metrics.items()}
        broken = [name for name, value in self._readings.items() if not math.isfinite(value)]
        if broken:
            logger.warning("update %d: %s is not finite; the learning rate may be too high", self.updates, broken[0])


def _row(obs: Obs, index: tuple[int, ...]) -> Obs:
    """One observation of a batch."""
    if isinstance(obs, Mapping):
        return {key: _row(value, index) for key, value in obs.items()}
    if isinstance(obs, tuple):
        return tuple(_row(item, index) for item in obs)
    return obs[index].cpu().numpy()
