"""What the environments of `numbered.py` have left in a stream."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from surreal.distributed.connection.client import RedisClient
from surreal.distributed.experience.pointer_queue import PointerQueue
from surreal.distributed.experience.stream import Stream


def read_numbered_steps(address: str, run: str) -> dict[int, dict[int, list[int]]]:
    """Read a whole stream: numbers of the steps, by the process that took them and its environment.

    No chunk may be refused, and there are as many steps as Redis has counted.
    """
    found: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    with RedisClient(address, run=run) as client:
        queue = PointerQueue(Stream(client, 0))
        while queue.enqueue_step():
            while (chunk := queue.dequeue()) is not None:
                numbers = (chunk.leaves[0][chunk.obs_row[chunk.own]].astype(np.float64) * 2**24).round().astype(int)
                for process, env, count in numbers.tolist():
                    found[process][env].append(count)
        counted = int(client.redis.hget(client.shard_keys().meta, "steps") or 0)
    assert queue.refused_chunks == queue.gone_chunks == 0
    assert sum(len(counts) for of_process in found.values() for counts in of_process.values()) == counted
    return found


def assert_no_gap(found: dict[int, dict[int, list[int]]]) -> None:
    """Of each environment of each process the steps are there from the first one on, each once."""
    for process, environments in found.items():
        for env, counts in environments.items():
            # The last observation of an episode is shown, but no step begins in it.
            length = 8 + env
            expected = [count for count in range(counts[-1] + 1) if count % length != length - 1]
            assert counts == expected, f"environment {env} of process {process}"
