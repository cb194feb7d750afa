"""LiveChunks: the chunks that a replay holds, oldest first, and how many of them have to go."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from surreal.replay.store.storage import StoredChunk


class LiveChunks(deque[StoredChunk]):
    """Chunks in the order in which they were taken in, with the bytes that they take in Redis, by shard."""

    def __init__(self) -> None:
        super().__init__()
        self.stored_bytes: dict[int, int] = {}

    def append(self, chunk: StoredChunk) -> None:
        """Take in the newest chunk."""
        super().append(chunk)
        self.stored_bytes[chunk.shard] = self.stored_bytes.get(chunk.shard, 0) + chunk.stored_bytes

    def popleft(self) -> StoredChunk:
        """Let go of the oldest chunk."""
        chunk = super().popleft()
        self.stored_bytes[chunk.shard] -= chunk.stored_bytes
        return chunk

    def count_superfluous(
        self,
        steps: int,
        *,
        capacity: int,
        start_size: int,
        gone_until: int,
        is_old: Callable[[StoredChunk], bool],
        is_over: Callable[[Mapping[int, int]], bool],
    ) -> int:
        """How many of the oldest have to go.

        Args:
            steps: transitions that are alive.
            capacity: of them to keep at most.
            start_size: of them to keep at least.
            gone_until: observation row before which all are gone from Redis.
            is_old: whether a chunk came too long ago to stay, though there is room for it.
            is_over: whether so many bytes in Redis, by shard, are too many.

        Raises:
            ValueError: the byte bound cannot hold `start_size` transitions.
        """
        number, all_steps, stored = 0, steps, self.stored_bytes.copy()
        for chunk in self:
            is_needed = steps - chunk.steps < start_size
            if chunk.row_end <= gone_until:
                pass
            elif is_over(stored):
                if is_needed:
                    raise ValueError(
                        f"the replay's max_bytes is used up by {all_steps} transitions, but its start_size is "
                        f"{start_size}: raise max_bytes (and Redis' maxmemory), or lower start_size"
                    )
            elif is_needed or (steps <= capacity and not is_old(chunk)):
                break
            number, steps = number + 1, steps - chunk.steps
            stored[chunk.shard] -= chunk.stored_bytes
        return number
