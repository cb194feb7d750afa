"""Which server of several has which parameters: the same answer in every process, from names and sizes alone."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

#: By group, then by name.
Groups = Mapping[str, Mapping[str, Tensor]]


def assign(sizes: Mapping[str, int], number: int) -> list[frozenset[str]]:
    """Divide names among servers, so that each has about as many bytes: the largest first, each to the emptiest server.

    Args:
        sizes: bytes by name; their order does not matter.
        number: of servers, >= 1.

    Returns:
        The names of each server; those of a server may be none.
    """
    if number < 1:
        raise ValueError(f"number is {number}; it must be >= 1")
    parts: list[set[str]] = [set() for _ in range(number)]
    totals = [0] * number
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        emptiest = totals.index(min(totals))
        parts[emptiest].add(name)
        totals[emptiest] += sizes[name]
    return [frozenset(part) for part in parts]


def flatten(groups: Groups) -> dict[str, Tensor]:
    """Name each tensor `group/name`, as it travels; in the order of the groups."""
    return {f"{group}/{name}": tensor for group, tensors in groups.items() for name, tensor in tensors.items()}


def unflatten(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Undo `flatten`."""
    groups: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        group, _, name = key.partition("/")
        groups.setdefault(group, {})[name] = tensor
    return groups


def assign_parameters(groups: Groups, number: int, counts: Groups | None = None) -> list[frozenset[str]]:
    """Divide what travels among servers, as `group/name`.

    Args:
        groups: the parameters of a learner, `Learner.parameter_groups()`.
        number: of servers.
        counts: further tensors, of which the first server gets all.
    """
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in flatten(groups).items()}
    first, *others = assign(sizes, number)
    return [first | flatten(counts or {}).keys(), *others]
