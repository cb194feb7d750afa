"""Surreal's sender and replay as a library: no agent, no learner, no configuration.

A valve fills and empties a tank at random. One thread sends what happens; any number of programs on any machines could
do so. The other thread samples batches of three-step transitions, as tensors, from the newest 5000. The limiter slows
the faster side, so that each step is sampled four times on average.

    python examples/sender_and_replay.py         10 s; prints the contents of the batches
"""

import sys
import threading

import numpy as np

from surreal import ExpSender, RedisClient, UniformReplay, run_program, temporary_run


def send_steps(client: RedisClient, steps: int) -> None:
    """Fill the replay; an episode is cut after 100 steps."""
    rng = np.random.default_rng(1)
    level = np.zeros(1, np.float32)
    with ExpSender(client, chunk_steps=32, lookahead=2, is_limited=True) as sender:
        for step in range(1, steps + 1):
            flow = rng.uniform(-0.1, 0.1)
            new_level = np.clip(level + flow, -1.0, 1.0, dtype=np.float32)
            is_cut = step % 100 == 0
            sender.send([level, new_level], flow, reward=-abs(flow), done=is_cut, truncated=is_cut)
            level = np.zeros(1, np.float32) if is_cut else new_level


def main(steps: int = 20_000) -> None:
    """Draw batches for as long as steps come in."""
    batches = 0
    with (
        temporary_run() as client,  # to share a run between programs: RedisClient("HOST:PORT", run="NAME")
        UniformReplay(client, batch_size=64, capacity=5000, start_size=500, n_step=3, samples_per_insert=4) as replay,
    ):
        producer = threading.Thread(target=send_steps, args=(client, steps), daemon=True)
        producer.start()
        while producer.is_alive():
            batch = replay.dequeue(timeout_s=0.1)
            if batch is None:
                continue
            batches += 1
            if batches % 300 == 0:
                print(
                    f"{replay.global_step} steps sent, {len(replay)} in the replay; "
                    f"obs {tuple(batch.obs.shape)}, mean reward of three steps {batch.reward.mean():.3f}"
                )
    print(f"each step was drawn {64 * batches / steps:.2f} times")


if __name__ == "__main__":
    sys.exit(run_program("sender-and-replay", main, log_level="WARNING"))
