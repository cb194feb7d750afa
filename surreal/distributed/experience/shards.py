"""`ReplayShards`: the shards of a run's replay, and a shard as a file.

A shard is one stream with its blocks and counts, on one server. Several servers share the load of a run's experience:
shard s is on server s modulo their number, or, in a Redis Cluster, on the server that has its hash slot. A single
`RedisClient` stands for one shard.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from surreal.base.errors import CheckpointError
from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import ShardKeys, shards_pattern, stream_pattern
from surreal.distributed.experience.stream import Stream

MAX_SHARDS = 1024
_FILE_KIND = "shard"


class ReplayShards:
    """The shards of one run, the same in all of its processes.

    Args:
        clients: clients of the servers, in an order that all processes agree on.
        num_shards: number of shards, 1 .. 1024; None: one per server. In a Redis Cluster, a multiple of its primaries
            loads them evenly.

    Raises:
        ValueError: there are fewer shards than servers, or the clients are of different runs.
    """

    def __init__(self, clients: RedisClient | Sequence[RedisClient], num_shards: int | None = None) -> None:
        self.clients = [clients] if isinstance(clients, RedisClient) else list(clients)
        number = len(self.clients) if num_shards is None else num_shards
        if not 1 <= len(self.clients) <= number <= MAX_SHARDS:
            raise ValueError(
                f"{number} shards on {len(self.clients)} servers; there must be 1 .. {MAX_SHARDS}, one a server or more"
            )
        self.run = self.clients[0].run
        if any(client.run != self.run for client in self.clients):
            raise ValueError("the shards' clients must be of the same run")
        self.keys = [ShardKeys(self.run, shard, number) for shard in range(number)]
        homes = [self.clients[shard % len(self.clients)] for shard in range(number)]
        self._own = {i: home.at_hash_slot(self.keys[i].hash_slot) for i, home in enumerate(homes) if home.is_cluster}
        self._by_shard = [self._own.get(shard, home) for shard, home in enumerate(homes)]

    @classmethod
    def of(cls, where: RedisClient | ReplayShards) -> ReplayShards:
        return cls(where) if isinstance(where, RedisClient) else where

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def address(self) -> str:
        """Their addresses for messages, without passwords."""
        return ", ".join(client.address for client in self.clients)

    def stream(self, shard: int) -> Stream:
        """Return one shard; raises `ValueError` if there is no such shard."""
        if not 0 <= shard < len(self):
            raise ValueError(f"shard is {shard}; it must be 0 .. {len(self) - 1}")
        home = self._by_shard[shard]
        # Shards that share the server's memory; a cluster has three primaries or more.
        neighbors = -(-len(self) // 3) if shard in self._own else sum(client is home for client in self._by_shard)
        return Stream(home, self.keys[shard], server_share=1 / neighbors, shard=shard)

    def streams(self, shards: Sequence[int] | None = None) -> list[Stream]:
        return [self.stream(shard) for shard in (range(len(self)) if shards is None else shards)]

    def foreign_streams(self) -> list[str]:
        """Return streams of the run on these servers that belong to another number of shards. Slow."""
        pattern = stream_pattern(self.run)
        found = {key.decode() for client in self.clients for key in client.scan(pattern)}
        return sorted(found - {keys.stream for keys in self.keys})

    def delete_run(self) -> int:
        """Remove all keys of the run from these servers; return how many."""
        return sum(client.delete_run() for client in self.clients)

    def delete_experience(self) -> int:
        """Remove everything that was sent to the run; return how many env steps that were."""
        steps = sum(stream.counts().steps for stream in self.streams())
        for client in self.clients:
            client.unlink(shards_pattern(self.run))
        return steps

    def close(self) -> None:
        for client in (*self.clients, *self._own.values()):
            client.close()


def save_shard(stream: Stream, path: str | os.PathLike[str]) -> None:
    """Write a shard to a file as Redis dumps it, from which a run in lockstep resumes; raises `CheckpointError`.

    Entries, blocks and counts are written, but not leases and other keys that expire. All of them are in memory at
    once, and the file is written whole or not at all. No process may write to the shard meanwhile. For other runs,
    programs and versions, use an archive (`surreal.replay.archive`).
    """
    import torch

    from surreal.base.checkpoint import save_checkpoint

    keys, redis = stream.keys, stream.client.redis
    blocks = sorted(name.decode() for name in stream.client.scan(f"{keys.block_prefix}*"))
    tensors = {}
    for name in (keys.stream, keys.meta, *blocks):
        dumped = redis.dump(name)
        if dumped is not None:
            tensors[name.removeprefix(keys.prefix)] = torch.frombuffer(bytearray(dumped), dtype=torch.uint8)
    save_checkpoint(path, tensors, {"kind": _FILE_KIND}, step=0)


def load_shard(stream: Stream, path: str | os.PathLike[str]) -> None:
    """Restore a file of `save_shard` into a shard that was cleared; raises `CheckpointError` if it is none."""
    from surreal.base.checkpoint import load_checkpoint

    found = load_checkpoint(path)
    if found.metadata.get("kind") != _FILE_KIND:
        raise CheckpointError(f"{found.path} holds no experience of a run in lockstep")
    for name, tensor in found.tensors.items():
        stream.client.redis.restore(stream.keys.prefix + name, 0, tensor.numpy().tobytes())
