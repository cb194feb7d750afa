"""Batches of trajectories, made larger, or smaller: of single steps, or of sequences where a memory needs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from surreal.base import tree
from surreal.base.pytorch import Module, move_tensor
from surreal.base.types import Obs, SampleInfo, TrajectoryBatch
from surreal.learner.on_policy.evaluating import compute, legal
from surreal.model import PolicyValue

#: Columns that are 0 in a row without a step.
_ABSENT = ("reward", "discount", "mask", "is_first", "terminated", "truncated")

#: Observations up to this size are shuffled as a whole, bytes.
_SMALL_BYTES = 4 << 20


class Minibatch(NamedTuple):
    """Some of the steps of a batch, or all: [N] single ones, or [T, b] of whole sequences."""

    obs: Obs
    action: Tensor
    mask: Tensor | None  #: 1 for a step, 0 for a row of a sequence without one; None: all are steps
    index: Any  #: of these steps in any [T, B, ...]: `advantages[minibatch.index]`
    action_mask: Tensor | None
    state: Tensor | None  #: [b, *state_shape] of sequences
    is_first: Tensor | None  #: [T, b] of sequences
    shuffled: Shuffled | None = None  #: the batch in this minibatch's order, of which it is a slice
    part: slice = slice(None)

    def of(self, column: Any) -> Any:
        """Return `column[index]` of a [T, B, ...] that all minibatches read; it lives unchanged as long as they do."""
        return column[self.index] if self.shuffled is None else self.shuffled.pick(column, self.part)

    def policy_mask(self, chosen: Tensor | None) -> Tensor | None:
        """Return its part of `Targets.policy_mask`; without one, `mask`."""
        return self.mask if chosen is None else self.of(chosen)

    def alone(self) -> Minibatch:
        return self._replace(index=None, shuffled=None, part=slice(None))

    def compute(self, model: Module) -> PolicyValue:
        """Policy over the legal actions, and value, of these steps."""
        policy, value = compute(model, self.obs, self.state, self.is_first)
        return PolicyValue(legal(policy, self.action_mask), value)


def everything(batch: TrajectoryBatch, *, whole: bool, steps: Tensor | None = None) -> Minibatch:
    """Return all `steps` of a batch in order: [N], or [T, B] where a memory needs their order; see `minibatches`."""
    if not whole:
        # Torch takes a third longer for the layers of a small network, and their gradients, over two leading axes.
        return Shuffled(batch, _steps(batch) if steps is None else steps).part(slice(None))
    return Minibatch(
        obs=tree.map_leaves(lambda leaf: leaf[:-1], batch.obs),
        action=batch.action,
        mask=None if bool(batch.mask.all()) else batch.mask,
        index=slice(None),
        action_mask=batch.extras.get("action_mask"),
        state=batch.initial_state.get("state"),
        is_first=batch.is_first[:-1],
    )


def epochs(
    batch: TrajectoryBatch, size: int | None, *, whole: bool, rng: np.random.Generator
) -> Callable[[], Iterable[Minibatch]]:
    """Return a function whose every call goes through all steps once; arguments as in `minibatches`.

    Where one minibatch has all steps, it is `everything`, the same each time: their order would change nothing.
    """
    length, columns = batch.mask.shape
    steps = None if whole else _steps(batch)
    count = columns if steps is None else len(steps)
    if size is None or _count(count, max(1, size // length) if whole else size) == 1:
        parts = (everything(batch, whole=whole, steps=steps),)
        return lambda: parts
    return lambda: minibatches(batch, size, whole=whole, rng=rng, steps=steps)


def minibatches(
    batch: TrajectoryBatch, size: int | None, *, whole: bool, rng: np.random.Generator, steps: Tensor | None = None
) -> Iterator[Minibatch]:
    """Iterate over all steps of a batch [T, B] once, in random order, in minibatches of almost the same size, so that
    none is tiny; without a size, in one. If trajectories stay whole, each has as many as come nearest to `size` steps.

    `steps` are the numbers of the batch's steps, counted row by row, on the CPU; None: they are read from its mask,
    which waits for a GPU.
    """
    length, columns = batch.mask.shape
    if whole:
        order, device = torch.from_numpy(rng.permutation(columns)), batch.mask.device
        for part in _parts(columns, None if size is None else max(1, size // length)):
            yield _sequences(batch, move_tensor(order[part], device))
        return
    steps = _steps(batch) if steps is None else steps
    shuffled = Shuffled(batch, steps[torch.from_numpy(rng.permutation(len(steps)))])
    for part in _parts(len(steps), size):
        yield shuffled.part(part)


class Shuffled:
    """The steps of a batch in a given order. Minibatches are slices of it, so each column is reordered only once.

    Args:
        steps: numbers of the steps, counted row by row, on the CPU.
    """

    def __init__(self, batch: TrajectoryBatch, steps: Tensor) -> None:
        columns, steps = batch.mask.shape[1], move_tensor(steps, batch.mask.device)
        self._places = steps // columns, steps % columns
        self._batch = batch
        self._obs = tree.map_leaves(lambda leaf: leaf[:-1], batch.obs)
        leaves = tree.leaves(self._obs)
        # Large observations are picked part by part: a copy of all of them would not stay in the processor's cache.
        if sum(leaf.numel() * leaf.element_size() for leaf in leaves) <= _SMALL_BYTES:
            self._obs = tree.map_leaves(lambda leaf: leaf[self._places], self._obs)
            self._has_picked_obs = True
        else:
            self._has_picked_obs = False
        # By the id of a column, with the column, so that no other one gets its id.
        self._picked: dict[int, tuple[Any, Any]] = {}

    def part(self, part: slice) -> Minibatch:
        """Return some of the steps, as a slice of the order."""
        index = tuple(each[part] for each in self._places)
        where: Any = part if self._has_picked_obs else index
        action_mask = self._batch.extras.get("action_mask")
        return Minibatch(
            obs=tree.map_leaves(lambda leaf: leaf[where], self._obs),
            action=self.pick(self._batch.action, part),
            mask=None,
            index=index,
            action_mask=None if action_mask is None else self.pick(action_mask, part),
            state=None,
            is_first=None,
            shuffled=self,
            part=part,
        )

    def pick(self, column: Any, part: slice) -> Any:
        found = self._picked.get(id(column))
        if found is None:
            found = self._picked[id(column)] = column, column[self._places]
        return found[1][part]


def concatenate(batches: Sequence[TrajectoryBatch]) -> TrajectoryBatch:
    """Put the trajectories of several batches, one at least, into one; those with fewer rows are filled up."""
    first = batches[0]
    if len(batches) == 1:
        return first
    rows = max(len(batch.mask) for batch in batches)
    batches = [_filled_up(batch, rows) for batch in batches]
    infos: Any = zip(*(batch.sample_info for batch in batches), strict=True)
    joined: dict[str, Any] = {
        name: tree.map_together(
            partial(torch.cat, dim=0 if name == "initial_state" else 1), [getattr(batch, name) for batch in batches]
        )
        for name in first._fields
        if name not in ("sample_info", "burn_in")
    }
    info: Any = [None if column[0] is None else np.concatenate(column) for column in infos]
    return TrajectoryBatch(**joined, sample_info=SampleInfo(*info), burn_in=first.burn_in)


def _filled_up(batch: TrajectoryBatch, rows: int) -> TrajectoryBatch:
    """Append rows without a step, which repeat the last observation, until the batch has `rows` rows."""
    more = rows - len(batch.mask)
    if not more:
        return batch

    def repeat(leaf: Tensor) -> Tensor:
        return torch.cat([leaf, leaf[-1:].expand(more, *leaf.shape[1:])])

    def clear(leaf: Tensor) -> Tensor:
        return torch.cat([leaf, leaf.new_zeros(more, *leaf.shape[1:])])

    cleared: dict[str, Any] = {name: clear(getattr(batch, name)) for name in _ABSENT}
    return batch._replace(
        obs=tree.map_leaves(repeat, batch.obs),
        action=tree.map_leaves(repeat, batch.action),
        version=repeat(batch.version),
        extras={name: repeat(column) for name, column in batch.extras.items()},
        **cleared,
    )


def _steps(batch: TrajectoryBatch) -> Tensor:
    """Numbers of the steps, counted row by row, on the CPU."""
    steps: Tensor = batch.mask.cpu().flatten().nonzero().squeeze(1)
    return steps


def _parts(items: int, size: int | None) -> Iterator[slice]:
    """Yield slices whose sizes are nearest to `size`, and differ by one at most."""
    count, begin = _count(items, size), 0
    for number in range(count):
        end = begin + items // count + (number < items % count)
        yield slice(begin, end)
        begin = end


def _count(items: int, size: int | None) -> int:
    """Number of parts whose size is nearest to `size`."""
    return 1 if size is None else max(1, round(items / size))


def _sequences(batch: TrajectoryBatch, columns: Tensor) -> Minibatch:
    index = slice(None), columns
    action_mask, state = batch.extras.get("action_mask"), batch.initial_state.get("state")
    return Minibatch(
        obs=tree.map_leaves(lambda leaf: leaf[:-1][index], batch.obs),
        action=batch.action[index],
        mask=batch.mask[index],
        index=index,
        action_mask=None if action_mask is None else action_mask[index],
        state=None if state is None else state[columns],
        is_first=batch.is_first[:-1][index],
    )
