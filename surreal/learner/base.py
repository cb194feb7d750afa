"""The base of all learners; `surreal.base.contracts` shows the loop that calls them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Generic

import torch
from torch import Tensor
from typing_extensions import TypeVar

from surreal.base import tree
from surreal.base.checkpoint import check_tensors
from surreal.base.contracts import Kept, ReplayView
from surreal.base.errors import CheckpointError
from surreal.base.metrics import MeanDuration
from surreal.base.pytorch import Module
from surreal.base.ranges import PositiveInt, checked
from surreal.base.specs import ObsSpec
from surreal.base.types import Batch, SampleInfo, TrajectoryBatch
from surreal.distributed.calls import remote_methods
from surreal.learner.stepping.devices import BatchMover, Readback, multiplication_of, resolve_device
from surreal.learner.stepping.optimizers import MODEL
from surreal.learner.stepping.reports import Histograms, Readings

ModelT = TypeVar("ModelT", bound=Module, default=Module)
BatchT = TypeVar("BatchT", default=Any)


class Learner(ABC, Generic[ModelT, BatchT]):
    """Improves a model, one batch at a time. A subclass implements `learn`.

    `optimize` counts updates, gives the model its shape, moves tensors, measures the time and collects metrics. A
    subclass makes optimizers and further networks in `build`, and registers these for checkpoints there:
    `self.keep("target", network)`. Everything runs on the caller's thread. The model's lock is held only while
    parameters change.

    A subclass may name its types: `class Mine(Learner[QFunction, Batch])`.

    Args:
        model: may still be without a shape; the first batch, or a checkpoint, gives it one.
        replay: the source of the batches; None if they come from elsewhere.
        device: auto, cpu or cuda; the model is moved there.
        metrics_interval: updates between two readings of the metrics; 1 reports every update. Reading waits for the
            device, so raising it makes a GPU faster and metrics rarer.
        histogram_interval: updates between two histograms of parameters, gradients, observations and actions, and of a
            normal policy's mu and sigma; raising it costs less time. None makes none.
    """

    #: the kinds of batches that it learns from, out of a replay's `hands_out`
    takes: ClassVar[frozenset[str]] = frozenset({"transitions", "sequences", "trajectories"})

    @checked
    def __init__(
        self,
        model: ModelT,
        replay: ReplayView | None = None,
        *,
        device: str = "cpu",
        metrics_interval: PositiveInt = 100,
        histogram_interval: PositiveInt | None = None,
    ) -> None:
        self.model: ModelT = model
        self.replay = replay
        self.device = resolve_device(device)
        self.metrics_interval = metrics_interval
        self.histograms = Histograms(histogram_interval)
        self.readings = Readings()
        self.updates = 0
        self.is_ready = False
        self._move = BatchMover(self.device) if self.device.type != "cpu" else None
        self._readback = Readback(self.device)
        self._multiplication: Callable[[], AbstractContextManager[None]] = nullcontext
        self._global_step = 0
        #: metrics of the last update under bare names, {} if they were not read (`metrics_interval`)
        self.reading: dict[str, float] = {}
        self._duration = MeanDuration("learner/optimize_ms")
        self._kept: dict[str, tuple[Kept, Callable[[], dict[str, Tensor]] | None]] = {}

    def optimize(self, i: int, batch: Batch | TrajectoryBatch) -> dict[str, float]:
        """Run one update; returns its metrics, {} if they were not read (`metrics_interval`).

        Args:
            i: number of the batch, as `batch_iterator` gives it.
            batch: B transitions, or B trajectories [T, B], on any device.

        Raises:
            DivergedError: too many updates in a row were skipped.
        """
        started = time.perf_counter()
        self.prepare(batch)
        if self._move is not None:
            batch = self._move(batch)
        if self.histograms.interval is not None:
            self.histograms.begin(self.updates)
        with self._multiplication(), self.around_learn(batch) as seen:
            metrics = self.learn(i, seen)
        if self.histograms.is_due:
            with torch.no_grad():
                self.histograms.add_update(batch, self.policy_values(batch), self.parameter_groups())
        self.finish_update({**self._ages(batch.sample_info), **metrics} if self.is_metrics_due else {})
        count, seconds = self._duration.total
        self._duration.total = count + 1, seconds + time.perf_counter() - started
        return self.reading

    def finish_update(self, metrics: Mapping[str, Tensor | float]) -> None:
        """Read the metrics of an update, if they are due, and count it; `optimize` calls it."""
        is_due = self.is_metrics_due
        found = {**self.common_metrics(), **metrics} if is_due else {}
        self.updates += 1
        self.reading = self.readings.read(found, updates=self.updates, step=self.global_step) if is_due else {}

    @property
    def skipped_updates(self) -> int:
        """Updates of the run that were skipped because their gradients were not finite."""
        return 0

    @property
    def compile_seconds(self) -> tuple[float, float]:
        """CPU time that compiling took so far, and that it was expected to save, s."""
        return 0.0, 0.0

    def close(self) -> None:
        """End what works alongside the learner."""

    def check_learned(self) -> None:
        """Raise `DivergedError` at the end of a run if all of its updates were skipped."""

    @abstractmethod
    def learn(self, i: int, batch: BatchT) -> Mapping[str, Tensor | float]:
        """Run one update of the model from batch number `i`, a `Batch` or a `TrajectoryBatch` on `self.device`.

        Returns:
            Metrics: scalars under bare names; tensors may still have a graph. They are read only if `is_metrics_due`:
            ask before computing one that costs time. Leaving one out is fine.
        """

    def around_learn(self, batch: Any) -> AbstractContextManager[BatchT]:
        """Surround each call of `learn`; gives the batch that `learn` gets."""
        return nullcontext(batch)

    def remote_methods(self) -> Mapping[str, Callable[..., Any]]:
        """Methods that agents may call by name: those marked as `surreal.distributed.remote`."""
        return remote_methods(self)

    def prepare(self, batch: Batch | TrajectoryBatch) -> None:
        """Set the model's shape from this batch and build, unless that is done; `optimize` calls it."""
        if self.is_ready:
            return
        if not self.model.is_materialized:
            first = (0, 0) if isinstance(batch, TrajectoryBatch) else (0,)
            self.model.materialize(ObsSpec.from_obs(tree.map_leaves(lambda leaf: leaf[first].cpu(), batch.obs)))
        self.become_ready()

    def become_ready(self) -> None:
        """Move the model, which has its shape, to its device, and `build`; the first batch does it at the latest."""
        self.model.to(self.device)
        self.build()
        self._multiplication = multiplication_of(self.model.parameters())
        self.is_ready = True

    def build(self) -> None:
        """Make optimizers and further networks, once the model has its shape and is on its device; see `rebuild`."""

    def rebuild(self) -> None:
        """After a divergence, make optimizers and other networks again from the current model."""
        if self.is_ready:
            self._kept.clear()
            self.build()

    def keep(self, name: str, part: Kept, *, expected: Callable[[], dict[str, Tensor]] | None = None) -> None:
        """Keep something in checkpoints besides the model; for `build`.

        Args:
            name: name of the part, without a slash; not "model".
            part: has the tensors.
            expected: function that returns tensors with the names, shapes and dtypes that a checkpoint should have, if
                `part` has none before the first update; a checkpoint may then lack them. None: those of `part`.
        """
        if name == "model" or "/" in name or name in self._kept:
            raise ValueError(f"a part of a checkpoint cannot be named {name!r}: there is one, or it has a slash")
        self._kept[name] = part, expected

    @property
    def kept(self) -> dict[str, Kept]:
        """Return what checkpoints keep besides the model, by name."""
        return {name: part for name, (part, _) in self._kept.items()}

    def common_metrics(self) -> Mapping[str, Tensor | float]:
        """Return metrics to read in addition to those of `learn`, when they are due."""
        return {}

    def parameter_groups(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Return the parameters that the learner moves, by group and name; histograms show each of them."""
        return {MODEL: dict(self.model.named_parameters())}

    def policy_values(self, batch: Any) -> Mapping[str, Tensor]:
        """Return values [B, ...] or [T, B, ...] for histograms, without gradients, after an update that has some."""
        return {}

    @property
    def is_metrics_due(self) -> bool:
        return self.updates % self.metrics_interval == 0

    @property
    def global_step(self) -> int:
        """Env steps of the whole run, as far as known here; never decreases."""
        if self.replay is not None:
            self._global_step = max(self._global_step, self.replay.global_step)
        return self._global_step

    def on_global_step(self, step: int) -> None:
        """Set the run's number of env steps, if the replay does not know it."""
        self._global_step = max(self._global_step, step)

    @property
    def version(self) -> int:
        return self.model.version

    def metrics(self) -> dict[str, float]:
        """Return counts and times under full names; those of single updates are in `readings`."""
        return {"learner/updates_total": float(self.updates), **self._duration.metrics()}

    def send_priorities(self, batch: Batch | TrajectoryBatch, td_error: Tensor) -> None:
        """Send the replay the |TD error| of a batch's rows, [B] float32, if it uses them; see `Readback`."""
        replay, info = self.replay, batch.sample_info
        if replay is not None and replay.wants_priorities:
            self._readback.bring(td_error.detach().abs(), lambda priority: replay.update_priorities(info, priority))

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a bit-exact resume needs: `{"tensors": {name: Tensor}, "state": JSON-able}`.

        The tensors are the live ones, not copies: write them before the next update.

        Raises:
            CheckpointError: the model has no shape yet, so there is nothing to keep.
        """
        if not self.is_ready:
            if not self.model.is_materialized:
                raise CheckpointError("the model has no shape before its first batch, so there is nothing to save yet")
            self.become_ready()
        self._readback.flush()
        tensors = {f"model/{name}": tensor for name, tensor in self.model.tensors().items()}
        for part, kept in self.kept.items():
            tensors.update({f"{part}/{name}": tensor for name, tensor in kept.tensors().items()})
        state = {
            "learner": type(self).__name__,
            "updates": self.updates,
            "global_step": self.global_step,
            "version": self.version,
            "model": self.model.header(),
        }
        return {"tensors": tensors, "state": state}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave; no value changes unless everything fits.

        The model's version becomes the checkpoint's, so a broadcaster can propose a higher one.

        Raises:
            CheckpointError: it belongs to another learner or another model; names the first tensor that differs.
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
            self.model.materialize_from(state.get("model", {}))
        check_tensors(self.model.tensors(), stored_model, "model")
        if not self.is_ready:
            self.become_ready()
        for part, (kept, expected) in self._kept.items():
            if expected is None or split.get(part):
                check_tensors((expected or kept.tensors)(), split.get(part, {}), part)
        self.model.load_tensors(stored_model, version)
        for part, kept in self.kept.items():
            kept.load_tensors(split.get(part, {}))
        self.updates, self._global_step = updates, global_step

    def _ages(self, info: SampleInfo) -> dict[str, float]:
        if self.replay is None:
            return {}
        found, versions = dict[str, float](), info.version[info.version >= 0]
        if len(versions):
            found["batch_lag_versions"] = self.version - float(versions.mean())
        if info.age_steps is not None and len(info.age_steps):
            found["batch_age_steps"] = float(info.age_steps.mean())
        return found
