"""A folder in which the commands and programs of pages mean something, and a Redis in which a run is known."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np

from surreal.checkpoint import save_checkpoint
from surreal.config import load_config
from surreal.distributed import ExpSender, RedisClient, TorchBroadcaster
from surreal.main.build.acting import build_model
from surreal.main.build.environments import build_spaces
from surreal.main.build.learning import build_learner
from surreal.main.process import registry
from surreal.main.process.registry import Registrant, plain_config, write_progress
from tests.policies import write_policy
from tests.recorded import record_run

ROOT = Path(__file__).parents[3]
#: The run that pages call NAME or demo, and another one.
RUN, OTHER = "demo", "other"
_PRESET, _SMALL = "cartpole-dqn", ("model.args.hidden_sizes=[8]",)
#: What stands for a reader's own, and what it is here.
_WORDS = {
    r"(redis://:SECRET@)?\b(HOST|replay-host):(6379|PORT)\b": "{redis}",
    r"\bNAME\b|<id>": RUN,
    r"\bOTHER\b": "another",
    r"\bPATH\b": "archive",
    r"\bRUN_FOLDER\b": f"runs/{RUN}",
}


class Desk:
    """A folder, the current one, with two runs that are over; one of them is known in Redis, too, and goes on there.

    Args:
        folder: must not exist.
        stock: made by `make_stock`.
        address: of a Redis that knows no run of these names.
    """

    def __init__(self, folder: Path, stock: Path, address: str) -> None:
        shutil.copytree(stock, folder)
        self.folder, self.address = folder, address
        self.client = RedisClient(address, run=RUN)
        self.policies: list[TorchBroadcaster] = []
        (folder / "runs" / RUN / "redis.address").write_text(f"{address}\n{RUN}\n")
        self._begin_run()

    def read(self, text: str) -> str:
        """Put what is here in the place of a reader's own."""
        for word, meaning in _WORDS.items():
            text = re.sub(word, meaning.format(redis=self.address), text)
        return text

    def close(self) -> None:
        """Leave nothing in Redis."""
        for policy in self.policies:
            policy.close()
        self.client.delete_run()
        with RedisClient(self.address, run="another") as other:
            other.delete_run()
        self.client.close()

    def _begin_run(self) -> None:
        config = load_config(_PRESET, _SMALL)
        registry.register(self.client, config, Registrant("learner", leads=True))
        sender = ExpSender(self.client, chunk_steps=50, lookahead=config.learner.n_step)
        obs = np.zeros(4, np.float32)
        for i in range(100):
            sender.send([obs, obs], i % 2, 1.0, i % 20 == 19)
        assert sender.close()
        model = build_model(config, build_spaces(config))
        self.policies.append(TorchBroadcaster(self.client, model))
        self.policies[0].broadcast(model, write_progress(1, 100))


def make_stock(folder: Path) -> Path:
    """Make what every desk begins with: `runs` with two runs, and an app."""
    for seed, name in enumerate((RUN, OTHER)):
        run = record_run(folder / "runs" / name, preset=_PRESET, seed=seed, overrides=_SMALL)
        write_policy(run / "eval" / "best.safetensors", _PRESET, *_SMALL)
        _write_checkpoint(run / "checkpoints" / "0000004000.safetensors")
    (folder / "app.yaml").write_text((ROOT / "surreal" / "config" / "presets" / f"{_PRESET}.yaml").read_text())
    (folder / "my_sweep.yaml").write_text((ROOT / "examples" / "sweeps" / "learning-rate.yaml").read_text())
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


def _write_checkpoint(path: Path) -> None:
    config = load_config(_PRESET, _SMALL)
    state = build_learner(config, build_model(config, build_spaces(config)), None).state_dict()
    about = {"kind": "learner", "version": 7, "config": plain_config(config), "state": state["state"]}
    path.parent.mkdir()
    save_checkpoint(path, state["tensors"], about, step=4000)
