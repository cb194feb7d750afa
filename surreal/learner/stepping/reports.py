"""The figures of updates, collected by the learner's thread and taken by the telemetry's: histograms and readings."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from surreal.base import tree
from surreal.base.metrics import Histogram, Reading, summarize
from surreal.base.types import Batch, TrajectoryBatch
from surreal.learner.stepping.optimizers import MODEL
from surreal.model import Distribution, Normal, SquashedNormal

#: Most histograms of one group of parameters; beyond, those of a module count together.
MAX_TENSORS = 50
#: Most numbers of a batch in one histogram, about; beyond, only some of its steps count.
MAX_VALUES = 1 << 20


class Histograms:
    """Gathers histograms of the updates 0, interval, 2 interval, ...; None: never."""

    def __init__(self, interval: int | None) -> None:
        self.interval = interval
        self.is_due = False  #: whether the running update is one of these
        self._found: dict[str, Histogram] = {}
        self._seen_groups: set[str] = set()
        self._lock = threading.Lock()

    def begin(self, update: int) -> None:
        self.is_due = self.interval is not None and update % self.interval == 0
        if self.is_due:
            self._seen_groups.clear()

    def wants_gradients(self, group: str) -> bool:
        """Whether none of this group came since the last update that was due; one that moves seldom is shown then."""
        return self.interval is not None and group not in self._seen_groups

    def add_gradients(self, group: str, tensors: Mapping[str, Tensor]) -> None:
        self._seen_groups.add(group)
        self._add_group("gradients", group, tensors)

    def add_update(
        self,
        batch: Batch | TrajectoryBatch,
        policy_values: Mapping[str, Tensor],
        parameters: Mapping[str, Mapping[str, Tensor]],
    ) -> None:
        """Add a batch's observations, the policy's values in it by name, and the parameters by group and name."""
        for name, values in step_values(batch, policy_values):
            self.add(f"learner/{name}", values)
        for group, tensors in parameters.items():
            self._add_group("weights", group, tensors)

    def add(self, name: str, values: Tensor) -> None:
        """Add a histogram, named `group/what`, of all finite numbers of a tensor, if there is one."""
        with suppress(ValueError):  # nothing is finite, or the numbers lie too close to be told apart
            histogram = summarize(values)
            with self._lock:
                self._found[name] = histogram

    def take(self) -> dict[str, Histogram]:
        """Return the newest of each name, once; from any thread."""
        with self._lock:
            found, self._found = self._found, {}
        return found

    def _add_group(self, kind: str, group: str, tensors: Mapping[str, Tensor]) -> None:
        """Add the tensors of a group, of any shapes; `MAX_TENSORS` histograms at most."""
        prefix = f"{kind}/" if group == MODEL else f"{kind}/{group}."
        for name, members in _gathered_names(tensors).items():
            self.add(prefix + name, torch.cat([tensors[member].detach().reshape(-1) for member in members]))


def step_values(batch: Batch | TrajectoryBatch, further: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Return observations, actions and further values of a batch, by name, without padding rows."""
    if isinstance(batch, TrajectoryBatch):
        steps = (batch.mask > 0.0).nonzero(as_tuple=True)
        obs = tree.map_leaves(lambda leaf: leaf[:-1], batch.obs)
    else:
        steps, obs = (torch.arange(len(batch.reward), device=batch.reward.device),), batch.obs
    for name, values in (*tree.with_paths(obs, "obs"), ("action", batch.action), *further.items()):
        size = math.prod(values.shape[len(steps) :])
        stride = math.ceil(max(1, len(steps[0]) * size / MAX_VALUES))
        yield name, values[tuple(index[::stride] for index in steps)]


def normal_values(policy: Distribution) -> dict[str, Tensor]:
    """Return `mu` and `sigma` [..., n] of a policy that is normal, before it is squashed; {} of another."""
    normal: Any = policy.normal if isinstance(policy, SquashedNormal) else policy
    return {"mu": normal.mean, "sigma": normal.log_sigma.exp()} if isinstance(normal, Normal) else {}


def _gathered_names(names: Iterable[str]) -> dict[str, list[str]]:
    """Gather the dotted names of tensors under their own, or under those of their modules where they are too many."""
    parts = [name.split(".") for name in names]
    for depth in range(max(map(len, parts), default=1), 0, -1):
        gathered: dict[str, list[str]] = {}
        for path in parts:
            gathered.setdefault(".".join(path[:depth]), []).append(".".join(path))
        if len(gathered) <= MAX_TENSORS:
            break
    return dict(list(gathered.items())[:MAX_TENSORS])


logger = logging.getLogger(__name__)

#: Readings that wait for the telemetry, at most: more than come in one of its intervals.
_MAX_READINGS = 2000


class Readings:
    """Reads metrics, and keeps them until they are taken."""

    def __init__(self) -> None:
        self._waiting: deque[Reading] = deque(maxlen=_MAX_READINGS)
        self._was_finite = True

    def read(self, metrics: Mapping[str, Tensor | float], *, updates: int, step: int) -> dict[str, float]:
        """Read an update's metrics, all at once; `updates` includes this one, `step` is the run's env step."""
        there = [name for name, value in metrics.items() if isinstance(value, Tensor) and value.device.type != "cpu"]
        if there:
            read = torch.stack([metrics[name].detach().reshape(()).to(torch.float32) for name in there]).tolist()  # type: ignore[union-attr]
            metrics = {**metrics, **dict(zip(there, read, strict=True))}
        found = {name: float(value.detach() if isinstance(value, Tensor) else value) for name, value in metrics.items()}
        broken = [name for name, value in found.items() if not math.isfinite(value)]
        if broken and self._was_finite:
            logger.warning("update %d: %s is not finite", updates, broken[0])
        self._was_finite = not broken
        values = {f"learner/{name}": value for name, value in found.items()}
        # The number of the update places its metrics along the axis of updates.
        self._waiting.append(Reading(time.time(), step, {**values, "learner/updates_total": float(updates)}))
        return found

    def take(self) -> list[Reading]:
        """Return the metrics read since the last call, update by update; may be called on any thread."""
        taken = list[Reading]()
        with suppress(IndexError):
            while True:
                taken.append(self._waiting.popleft())
        return taken
