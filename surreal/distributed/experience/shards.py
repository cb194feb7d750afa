"""ReplayShards: where the shards of a run's replay are.

A shard is one stream with its blocks and counts, on one server. Several servers share the load of a run's experience:
shard s is on server s modulo their number, or, in a Redis Cluster, on the server that has its hash slot. Whoever names
a single `RedisClient` has one shard.
"""

from __future__ import annotations

from collections.abc import Sequence

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.connection.keys import ShardKeys, stream_pattern
from surreal.distributed.experience.stream import Stream

MAX_SHARDS = 1024


class ReplayShards:
    """The shards of one run, the same in all of its processes.

    Args:
        clients: of the servers, in an order that all processes agree on.
        num_shards: how many shards, 1 .. 1024; None: one a server. In a Redis Cluster, a multiple of its masters loads
            them evenly.

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
        self._own = {
            shard: home.at_hash_slot(self.keys[shard].hash_slot) for shard, home in enumerate(homes) if home.is_cluster
        }
        self._by_shard = [self._own.get(shard, home) for shard, home in enumerate(homes)]

    @classmethod
    def of(cls, where: RedisClient | ReplayShards) -> ReplayShards:
        """These shards; or the only one that a client alone stands for."""
        return cls(where) if isinstance(where, RedisClient) else where

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def address(self) -> str:
        """Where they are, for messages, without passwords."""
        return ", ".join(client.address for client in self.clients)

    def stream(self, shard: int) -> Stream:
        """The names and commands of one shard.

        Raises:
            ValueError: there is no such shard.
        """
        if not 0 <= shard < len(self):
            raise ValueError(f"shard is {shard}; it must be 0 .. {len(self) - 1}")
        return Stream(self._by_shard[shard], self.keys[shard], server_share=1 / self._neighbours(shard), shard=shard)

    def streams(self, shards: Sequence[int] | None = None) -> list[Stream]:
        """Those of several shards, of all by default."""
        return [self.stream(shard) for shard in (range(len(self)) if shards is None else shards)]

    def foreign_streams(self) -> list[str]:
        """Streams of the run on these servers that are none of these shards': it has another number of them. Slow."""
        pattern = stream_pattern(self.run)
        found = {key.decode() for client in self.clients for key in client.scan(pattern)}
        return sorted(found - {keys.stream for keys in self.keys})

    def delete_run(self) -> int:
        """Remove all keys of the run from these servers; returns how many."""
        return sum(client.delete_run() for client in self.clients)

    def delete_experience(self) -> int:
        """Remove everything that was sent to the run; returns how many env steps that were."""
        steps = sum(stream.counts().steps for stream in self.streams())
        for client in self.clients:
            client.delete_experience()
        return steps

    def close(self) -> None:
        """Close the connections."""
        for client in (*self.clients, *self._own.values()):
            client.close()

    def _neighbours(self, shard: int) -> int:
        """Shards that share the server's memory with this one, itself included. In a cluster, as many as possible."""
        if shard in self._own:
            return -(-len(self) // 3)  # a cluster has three masters or more
        home = self._by_shard[shard]
        return sum(client is home for client in self._by_shard)
