"""Surreal: `surreal run` of DQN, with a learner that counts its updates.

python surreal_run.py FOLDER TASK
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmarks.kill_test.link import ports
from benchmarks.kill_test.tally import Tally, seed
from surreal.learner import DQNLearner

_CONFIG = Path(__file__).with_name("surreal_run.yaml")
_FRAMES = (
    "env.id=benchmarks.kill_test.tally:KillTestFrames-v0",
    "model.class=surreal.model.ConvQFunction",
    'model.args={"convolutions": "nature", "hidden_sizes": [128]}',
    "learner.batch_size=32",
    "replay.samples_per_insert=4",
    "replay.max_bytes=512mb",
)


#: Keeps a Redis alive, as a service manager does.
_SERVICE = "while true; do {python} -m surreal redis --port {port} --appendonly {folder}; sleep 0.1; done"


class CountingLearner(DQNLearner):
    """DQN that counts."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._tallies = {kind: Tally(kind) for kind in ("updates", "counted", "learned", "stored")}

    def learn(self, i: int, batch: Any) -> Mapping[str, Tensor | float]:
        found = super().learn(i, batch)
        self._tallies["updates"].add(1)
        self._tallies["learned"].set(self.updates + 1)
        self._tallies["counted"].set(self.global_step)
        self._tallies["stored"].set(len(self.replay))
        return found


def main() -> None:
    folder, task = sys.argv[1:]
    run = Path(folder) / "run"
    arguments = ["run", "--run-dir", str(run), "--quiet"]
    if (run / "run.id").exists():
        arguments.append("--resume")
    else:
        arguments += [str(_CONFIG), "--seed", str(seed())]
        arguments += [part for setting in (_FRAMES if task == "frames" else ()) for part in ("--set", setting)]
    if (found := ports()) is not None:  # the store is elsewhere, and the way to it may be cut
        port, store = found
        service = _SERVICE.format(python=sys.executable, port=store, folder=Path(folder) / "redis")
        subprocess.Popen(["sh", "-c", service])
        arguments += ["--redis", f"127.0.0.1:{port}", "--set", "redis.appendonly=false"]
    os.execv(sys.executable, [sys.executable, "-m", "surreal", *arguments])


if __name__ == "__main__":
    main()
