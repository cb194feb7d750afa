"""Nested observations, `Obs` of `surreal.base.types`, as trees: a leaf, or mappings and tuples of such trees.

Lists are leaves. Leaves have the order of `ObsSpec`: keys sorted, items in place. Agents use this in every step, so a
plain array costs one check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from surreal.base.types import Action, Obs, StepBatch


def map_leaves(function: Callable[[Any], Any], tree: Obs) -> Obs:
    """Apply a function to each leaf, and return the results in the same nesting of dicts and tuples."""
    if isinstance(tree, np.ndarray):
        return function(tree)
    if isinstance(tree, Mapping):
        return {key: map_leaves(function, child) for key, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple([map_leaves(function, child) for child in tree])
    return function(tree)


def map_together(function: Callable[[list[Any]], Any], trees: Sequence[Obs]) -> Obs:
    """Apply a function to the leaves that several trees, all alike, have in the same place."""
    first = trees[0]
    if isinstance(first, Mapping):
        return {key: map_together(function, [tree[key] for tree in trees]) for key in first}
    if isinstance(first, tuple):
        return tuple(map_together(function, children) for children in zip(*trees, strict=True))
    return function(list(trees))


def take(tree: Obs, index: Any) -> Obs:
    """Index every leaf of a batch: one row, a slice, or the rows of a mask."""
    return tree[index] if isinstance(tree, np.ndarray) else map_leaves(lambda leaf: leaf[index], tree)


def take_rows(batch: StepBatch, keep: Any) -> StepBatch:
    """Select rows of a pool's batch by a mask [N] bool."""
    columns = ("kind", "env_ids", "reward", "terminated", "truncated", "explore", "record")
    return batch._replace(
        **{name: getattr(batch, name)[keep] for name in columns},
        obs=take(batch.obs, keep),
        info={name: column[keep] for name, column in batch.info.items()},
        num_last=int(np.count_nonzero(keep[: batch.num_last])),
    )


def take_actions(action: Action, keep: Any) -> Action:
    """Select the actions of some acting rows by a mask [N] bool."""
    return Action(action.actions[keep], {name: column[keep] for name, column in action.extras.items()}, action.version)


def leaves(tree: Obs) -> list[Any]:
    """List the leaves in their order."""
    if isinstance(tree, Mapping):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key])]
    if isinstance(tree, tuple):
        return [leaf for child in tree for leaf in leaves(child)]
    return [tree]


def first_leaf(tree: Obs) -> Any:
    """Return the first leaf in the order of `leaves`, without listing all of them."""
    while isinstance(tree, Mapping | tuple):
        tree = tree[min(tree)] if isinstance(tree, Mapping) else tree[0]
    return tree


def with_paths(tree: Obs, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each leaf in order with its dotted path, such as "pose.0"; a single leaf has the path ""."""
    children: Iterable[tuple[Any, Obs]]
    if isinstance(tree, Mapping):
        children = ((key, tree[key]) for key in sorted(tree))
    elif isinstance(tree, tuple):
        children = enumerate(tree)
    else:
        yield path, tree
        return
    for key, child in children:
        yield from with_paths(child, join(path, key))


def join(path: str, key: object) -> str:
    """Return the path of a child."""
    return f"{path}.{key}" if path else str(key)
