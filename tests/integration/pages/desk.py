"""A folder in which what pages show means something, and a Redis in which a run is known."""

from __future__ import annotations

import gc
import importlib
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from surreal.base.checkpoint import save_checkpoint
from surreal.base.system.files import FileLock
from surreal.config import load_config
from surreal.config.preset_files import preset_path
from surreal.distributed import ExpSender, RedisClient, TorchBroadcaster
from surreal.rlx.pool.pool import RlxEnvPool
from surreal.run.build.acting import build_model
from surreal.run.build.environments import build_spaces
from surreal.run.build.learning import build_learner
from surreal.run.process import registry
from surreal.run.process.progress import write_progress
from surreal.run.process.registry import Registrant, plain_config
from tests.integration.pages.programs import Around
from tests.integration.rlx.conftest import Harness
from tests.pages import ROOT, Block, Kind
from tests.policies import write_policy
from tests.recorded import record_run, write_metrics

#: The run that pages call NAME or demo, and others.
_RUN, _OTHER = "demo", "other"
_PRESET, _SMALL = "cartpole-dqn", ("model.args.hidden_sizes=[8]",)
#: What stands for a reader's own, and what it is here.
_WORDS = {
    r"(redis://:SECRET@)?\b(HOST|replay-host|redis-[012]):(6379|PORT)\b": "{redis}",
    r"\bNAME\b": _RUN,
    r"\bOTHER\b": _OTHER,
    r"\bPATH\b": "archive",
    r"\bDIR\b": f"runs/{_RUN}",
}
_GAME = """
import { NodeWebSocket as Socket } from "./node-websocket.mjs";
globalThis.WebSocket ??= Socket;
let pulls = 0;
const game = {
  reset() { return Object.assign([0.5], { isOver: false }); }, state() { return [0.5]; },
  step() { if (++pulls === 5) process.exit(0); return { reward: 1, isOver: pulls % 2 === 0 }; },
};
"""
_GAME_IN_CPP = """
#include <vector>
struct {
    std::vector<float> reset() { return {0.0f}; }
    std::vector<float> state() { return {0.0f}; }
    bool step(long) { return true; }
    double reward() { return 1.0; }
} game;
"""
_OLD_APP = """
version: 1.1.0
environment: {run: python environment/training.py}
algorithm: {name: policy_gradient, input: {shape: [4]}, output: {continuous: false, action_size: 2}}
"""
_PACKAGE = """
import gymnasium
from surreal.learner import A2CLearner as A2C

gymnasium.register("MyEnv-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
"""


class Desk:
    """The current folder, with two runs that are over; one of them is known in Redis, too, and goes on there.

    Args:
        folder: must not exist.
        stock: made by `make_stock`.
        address: of a Redis that knows no run of these names.
    """

    def __init__(self, folder: Path, stock: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        shutil.copytree(stock, folder, symlinks=True)
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
        for name in [name for name in sys.modules if name.partition(".")[0] in ("algorithm", "environment")]:
            monkeypatch.delitem(sys.modules, name)  # of the app of another test
        self.folder, self.address, self.monkeypatch = folder, address, monkeypatch
        self._client = RedisClient(address, run=_RUN)
        self._server: Harness | None = None
        self._names: dict[str, Any] = {}
        self._expected: tuple[type[BaseException], ...] = ()
        (folder / "secret").write_text("SECRET\n")
        (folder / "runs" / _RUN / "redis.address").write_text(f"{address}\n{_RUN}\n")
        self._writer = FileLock(folder / "runs" / _RUN / "run.lock")
        self._writer.acquire()
        self._begin_run()

    def read(self, text: str) -> str:
        """Put what is here in the place of a reader's own."""
        for word, meaning in _WORDS.items():
            text = re.sub(word, meaning.format(redis=self.address), text)
        return text

    def run(self, block: Block, around: Around) -> None:
        """Run a program, or import a file, between what is around it."""
        if around.elsewhere:
            return
        names = self._names if "continued" in block.marks else {"desk": self, "__name__": "__main__"}
        self._names, self._expected = names, ()
        self._execute(block.marks.get("setup", ""), names)
        self._execute(around.before, names)
        if block.kind is Kind.FILE:
            name = block.file.removesuffix(".py")
            self.monkeypatch.delitem(sys.modules, name, raising=False)
            names[name] = importlib.import_module(name)
        else:
            try:
                self._execute(block.text, names)
            except self._expected as end:
                assert not getattr(end, "code", None), f"exit code {end}"
            else:
                assert not self._expected, f"it was to end with {self._expected}"
        self._execute(around.after, names)

    def ends_with(self, *errors: type[BaseException]) -> None:
        """Expect the program to end so."""
        self._expected = errors

    def run_javascript(self, text: str, node: str) -> None:
        """Run a module beside those of our client, with a game that ends it after some steps."""
        for path in (ROOT / "clients" / "js").glob("*.mjs"):
            shutil.copy(path, self.folder)
        (self.folder / "page.mjs").write_text(_GAME + self._with_server(text))
        subprocess.run([node, "page.mjs"], check=True, timeout=60)

    def check_cpp(self, text: str, compiler: str) -> None:
        """Compile a program with a game, no further than to its meaning."""
        (self.folder / "page.cpp").write_text(_GAME_IN_CPP + text)
        headers = ROOT / "clients" / "cpp"
        subprocess.run([compiler, "-std=c++17", "-fsyntax-only", f"-I{headers}", "page.cpp"], check=True, timeout=120)

    def metrics(self) -> list[tuple[Any, ...]]:
        """What clients have sent to the RLX server."""
        return [] if self._server is None else self._server.metrics

    def close(self) -> None:
        """Leave nothing in Redis, and no thread; what programs of pages leave open is no later test's business."""
        self._names.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        if self._server is not None:
            self._server.close()
        self._writer.release()
        self._client.close()
        for run in (_RUN, _OTHER, "own"):
            with RedisClient(self.address, run=run) as client:
                client.delete_run()

    def _execute(self, text: str, names: dict[str, Any]) -> None:
        exec(compile(self._with_server(text), "page", "exec"), names)

    def _with_server(self, text: str) -> str:
        return re.sub(r"localhost:7001", lambda _: f"localhost:{self._port()}", self.read(text))

    def _port(self) -> int:
        """Port of an RLX server whose agent takes any state, and always answers 0."""
        if self._server is None:
            self._server = Harness(RlxEnvPool(spaces.Discrete(4)))
        return self._server.port

    def _begin_run(self) -> None:
        config = load_config(_PRESET, _SMALL)
        registry.register(self._client, config, Registrant("learner", leads=True))
        sender = ExpSender(self._client, chunk_steps=50, lookahead=config.learner.n_step)
        obs = np.zeros(4, np.float32)
        for i in range(100):
            sender.send([obs, obs], i % 2, 1.0, i % 20 == 19)
        assert sender.close()
        model = build_model(config, build_spaces(config))
        broadcaster = TorchBroadcaster(self._client, model)
        broadcaster.broadcast(model, write_progress(1, 100))
        broadcaster.close()


def make_stock(folder: Path) -> Path:
    """Make what every desk begins with: `runs` with two runs, an app, and files that pages name."""
    for seed, name in enumerate((_RUN, _OTHER, "cartpole-1")):
        (folder / "runs" / name).mkdir(parents=True)
        run = record_run(folder / "runs" / name, preset=_PRESET, seed=seed, overrides=_SMALL)
        write_policy(run / "eval" / "best.safetensors", _PRESET, *_SMALL)
        write_metrics(run, "agent-0", 1000, {"agent/episode_return_recent": 20.0})
        _write_checkpoint(run / "checkpoints" / "0000004000.safetensors")
    (folder / "app.yaml").write_text(preset_path(_PRESET).read_text())
    (folder / "my_sweep.yaml").write_text((ROOT / "examples" / "sweeps" / "learning-rate.yaml").read_text())
    for sweep in ("lr", "my_sweep"):
        (folder / "sweeps" / sweep).mkdir(parents=True)
    (folder / "old").mkdir()
    (folder / "old" / "app.yaml").write_text(_OLD_APP)
    (folder / "my_package.py").write_text(_PACKAGE)
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


def _write_checkpoint(path: Path) -> None:
    config = load_config(_PRESET, _SMALL)
    state = build_learner(config, build_model(config, build_spaces(config)), None).state_dict()
    about = {"kind": "learner", "version": 7, "config": plain_config(config), "state": state["state"]}
    path.parent.mkdir()
    save_checkpoint(path, state["tensors"], about, step=4000)
