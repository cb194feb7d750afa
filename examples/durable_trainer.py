"""A plain PyTorch trainer on sequences of different lengths, whose workers are killed while it trains.

    python examples/durable_trainer.py          each row is learned from once

Workers put sequences of bits, labeled "more ones than zeros"; the trainer consumes them, and commits its progress.
"""

import multiprocessing
import sys

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
    with DurableReplay("bits") as replay:
        start = multiprocessing.get_context("spawn").Process
        workers, learned, killed, right = {}, 0, 0, 0.0
        while learned < WORKERS * PUTS * ROWS:
            for number in range(WORKERS):
                if number not in workers or workers[number].exitcode not in (None, 0):
                    workers[number] = start(target=work, args=(replay.address, number), daemon=True)
                    workers[number].start()
            if learned > 500 * (killed + 1) and killed < KILLS:
                workers[killed % WORKERS].kill()
                killed += 1
            if (batch := replay.consume(min(BATCH, WORKERS * PUTS * ROWS - learned), timeout_s=0.1)) is None:
                continue
            lengths = torch.tensor([len(bits) for bits in batch["bits"]])
            bits = nn.utils.rnn.pad_sequence([torch.tensor(bits) for bits in batch["bits"]], True, 2)
            logits = head(core(embed(bits))[0][torch.arange(len(bits)), lengths - 1]).squeeze(-1)
            label = torch.tensor(batch["label"]).float()
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(logits, label).backward()
            optimizer.step()
            right, learned = (
                0.9 * right + 0.1 * float(((logits > 0) == (label > 0.5)).float().mean()),
                learned + batch.rows,
            )
            batch.commit(state=b"%d" % learned)
        counts = replay.counts()
    print(f"{killed} kills; {counts['put']} rows put, {learned} learned from, {counts['rows']} left; {right:.0%} right")


if __name__ == "__main__":
    sys.exit(run_program("trainer", main))
