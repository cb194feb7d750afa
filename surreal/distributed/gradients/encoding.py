"""Gradients as bytes (safetensors, by `group/name`), and the server of each parameter. No I/O.

All gradients of a push are float32, or all are bfloat16. Every process divides the parameters among several servers in
the same way, from names and sizes alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from surreal.base.errors import CodecError
from surreal.distributed.connection.tensor_bytes import Format, read_tensors, tensor_pieces

#: By group, then by name.
Groups = Mapping[str, Mapping[str, Tensor]]
FORMAT = Format("surreal-gradients", "1", "a gradient is")
#: Setting -> dtype of gradients on the wire.
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def flatten(groups: Groups) -> dict[str, Tensor]:
    """Name each tensor `group/name`, in the order of the groups."""
    return {f"{group}/{name}": tensor for group, tensors in groups.items() for name, tensor in tensors.items()}


def unflatten(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Undo `flatten`."""
    groups: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        group, _, name = key.partition("/")
        groups.setdefault(group, {})[name] = tensor
    return groups


def assign(sizes: Mapping[str, int], number: int) -> list[frozenset[str]]:
    """Divide names among servers with about equal bytes: the largest first, each to the emptiest server.

    The order of `sizes` does not matter. A server may get none.
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


def assign_parameters(groups: Groups, number: int, counts: Groups | None = None) -> list[frozenset[str]]:
    """Divide `Learner.parameter_groups()` among servers, as `group/name`; the first gets all of `counts`."""
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in flatten(groups).items()}
    first, *others = assign(sizes, number)
    return [first | flatten(counts or {}).keys(), *others]


def to_wire(tensors: Mapping[str, Tensor], dtype: str) -> dict[str, Tensor]:
    """Convert gradients to contiguous CPU tensors of a dtype, without empty ones; `ValueError` for integers."""
    wanted = DTYPES[dtype]
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise ValueError(f"the gradient of {name} is of {tensor.dtype}; it must be of floating point")
    return {name: each.detach().to("cpu", wanted).contiguous() for name, each in tensors.items() if each.numel()}


def are_finite(tensors: Mapping[str, Tensor]) -> bool:
    """Whether all norms are finite, as those of finite tensors are, except for numbers beyond 1e19."""
    return all(math.isfinite(torch.linalg.vector_norm(tensor, dtype=torch.float32)) for tensor in tensors.values())


def encode(tensors: Mapping[str, Tensor]) -> list[memoryview]:
    """Encode the result of `to_wire`; the pieces are the tensors' memory, which must not change until they are sent."""
    return tensor_pieces(tensors, FORMAT)


def cut(pieces: Sequence[memoryview], part_bytes: int) -> list[list[memoryview]]:
    """Divide pieces into parts of at most `part_bytes` (>= 1) each, without copying."""
    parts: list[list[memoryview]] = [[]]
    room = part_bytes
    for piece in pieces:
        while piece:
            if room == 0:
                parts.append([])
                room = part_bytes
            parts[-1].append(piece[:room])
            taken = len(parts[-1][-1])
            piece, room = piece[taken:], room - taken
    return parts


def decode(data: bytearray, expected: Mapping[str, Sequence[int]] | None = None) -> dict[str, Tensor]:
    """Decode a whole push by `group/name`; float32 tensors are views on `data`. Without `expected` shapes, any tensors
    may come. Raises `CodecError` if it is cut off, corrupted, of another format or model, or not finite.
    """
    tensors, _ = read_tensors(data, FORMAT, must_be_finite=True)
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPES.values() or "/" not in name:
            raise CodecError(f"a gradient is corrupted: {name[:100]!r} of {tensor.dtype}")
        if expected is not None and tuple(expected.get(name, (-1,))) != tensor.shape:
            raise CodecError(f"a gradient is of another model: {name[:100]} is {list(tensor.shape)} there")
    return {name: tensor.to(torch.float32) for name, tensor in tensors.items()}
