"""A plain PyTorch trainer on sequences of bits, labeled "more ones than zeros", whose workers are killed meanwhile.

    python examples/durable_trainer.py          each row is learned from once

At the end, no rows are missing or left.
"""

import multiprocessing

import numpy as np
import torch
from torch import nn

from surreal import DurableReplay, run_program

WORKERS, PUTS, ROWS, BATCH, KILLS = 2, 150, 16, 64, 6


def work(address: str, number: int) -> None:
    """Put the rows of a worker, and continue where an earlier life of it ended."""
    replay, name = DurableReplay("bits", address=address), f"worker-{number}"
    for step in range((replay.last_step(name) or 0) + 1, PUTS + 1):
        rng = np.random.default_rng([number, step])
        bits = [rng.integers(0, 2, rng.integers(3, 20)) for _ in range(ROWS)]
        replay.put({"bits": bits, "label": [each.mean() > 0.5 for each in bits]}, writer=name, step=step)


def main() -> None:
    """Train while workers are killed."""
    embed, core, head = nn.Embedding(3, 16), nn.GRU(16, 32, batch_first=True), nn.Linear(32, 1)
    optimizer = torch.optim.Adam([*embed.parameters(), *core.parameters(), *head.parameters()], lr=1e-2)
    start = multiprocessing.get_context("spawn").Process
    with DurableReplay("bits") as replay:
        workers, left, killed, right = [start() for _ in range(WORKERS)], WORKERS * PUTS * ROWS, 0, 0.0
        while left:
            for number in range(WORKERS):
                if not workers[number].is_alive() and workers[number].exitcode != 0:
                    workers[number] = start(target=work, args=(replay.address, number), daemon=True)
                    workers[number].start()
            if killed < KILLS and left < 4300 - 500 * killed:
                workers[killed % WORKERS].kill()
                killed += 1
            if (batch := replay.consume(min(BATCH, left), timeout_s=0.1)) is None:
                continue
            last = torch.tensor([len(bits) - 1 for bits in batch["bits"]])
            bits = nn.utils.rnn.pad_sequence([torch.tensor(bits) for bits in batch["bits"]], True, 2)
            logits = head(core(embed(bits))[0][torch.arange(len(bits)), last]).squeeze(-1)
            label = torch.tensor(batch["label"])
            optimizer.zero_grad()
            nn.functional.soft_margin_loss(logits, 2.0 * label - 1.0).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            right = 0.9 * right + 0.1 * float(((logits > 0) == label).float().mean())
            batch.commit(state=b"%d rows left" % (left := left - batch.rows))
        print(f"{killed} kills; rows: {replay.counts()}; {right:.0%} right")


if __name__ == "__main__":
    raise SystemExit(run_program("trainer", main))
