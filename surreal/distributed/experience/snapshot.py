"""A shard as it is, in a file and back: entries, blocks and counts, byte for byte.

For runs in lockstep, which go on from exactly the experience that a checkpoint was written with. An archive
(`surreal.replay.archive`) is for everything else: other runs, other programs, other versions.
"""

from __future__ import annotations

import os
from itertools import islice

import torch

from surreal.base.checkpoint import load_checkpoint, save_checkpoint
from surreal.base.errors import CheckpointError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.stream import Stream

_KIND = "shard"
_BATCH = 500


def save_shard(stream: Stream, path: str | os.PathLike[str]) -> None:
    """Write what a shard holds, without leases and other keys that expire; nobody may write to it meanwhile.

    Args:
        stream: of the shard. All of its bytes are in memory at once.
        path: of the file, which is written whole or not at all.

    Raises:
        CheckpointError: it could not be written.
    """
    keys, redis = stream.keys, stream.client.redis
    blocks = sorted(name.decode() for name in stream.client.scan(f"{keys.block_prefix}*"))
    tensors = {}
    for name in (keys.stream, keys.meta, *blocks):
        dumped = redis.dump(name)
        if dumped is not None:
            tensors[name.removeprefix(keys.prefix)] = torch.frombuffer(bytearray(dumped), dtype=torch.uint8)
    save_checkpoint(path, tensors, {"kind": _KIND}, step=0)


def load_shard(stream: Stream, path: str | os.PathLike[str]) -> None:
    """Bring back what `save_shard` wrote, into a shard that was cleared.

    Raises:
        CheckpointError: the file is missing, damaged or no such file.
    """
    found = load_checkpoint(path)
    if found.metadata.get("kind") != _KIND:
        raise CheckpointError(f"{found.path} holds no experience of a run in lockstep")
    for name, tensor in found.tensors.items():
        stream.client.redis.restore(stream.keys.prefix + name, 0, tensor.numpy().tobytes())


def clear(client: RedisClient, prefix: str) -> None:
    """Remove all keys that begin so: the `prefix` of a shard's keys, or of a policy's."""
    keys = client.scan(f"{prefix}*")
    while batch := list(islice(keys, _BATCH)):
        client.redis.unlink(*batch)
