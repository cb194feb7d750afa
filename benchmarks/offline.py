"""Compare learning from recorded steps with d3rlpy: updates/s, and returns after as many updates.

    python -m benchmarks.offline DATASET [bc td3bc iql cql] [--task pendulum] [--rounds N] [--seconds S]
    python -m benchmarks.offline DATASET --updates 50000 --seeds 0 1 2

DATASET is an archive that `make datasets` records. Both learn from the same steps, with the preset's network, batches
and rates, on one thread. Surreal's batches come through Redis and a thread, as in `surreal run --offline`. Its updates
are compiled first, as they are in a long run, and d3rlpy's are what it makes by default.

With `--updates`, each run that ends adds a line to benchmarks/offline_returns.jsonl (`--records FILE`), and what is
recorded there is not run again. `python -m benchmarks.offline_returns` makes the table of docs/algorithms/recorded.md.
d3rlpy's batches are then gathered at once: from the same seed they are the same, bit for bit, and take less time.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

import surreal
from benchmarks import offline_returns, peers
from benchmarks.alone import alone
from benchmarks.harness import report
from benchmarks.offline_returns import KINDS, RECORDS, SEEDS, SIDES, standard_error
from benchmarks.peers import rotate
from surreal.config import Config, load_config
from surreal.distributed import EmbeddedRedis, RedisClient
from surreal.distributed.experience.shards import ReplayShards
from surreal.model import Distribution
from surreal.replay.archive import ReplayArchive, import_replay
from surreal.run.build.acting import build_model
from surreal.run.build.environments import build_spaces
from surreal.run.build.learning import build_learner, build_replay
from surreal.run.session.offline import offline_overrides

_PACKAGES = ("torch", "numpy", "gymnasium")
_EPISODES = 100
_UPDATES_TO_BEGIN = 20


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--task", default="pendulum")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a round of d3rlpy")
    parser.add_argument("--updates", type=int, help="compare returns after this many updates, not updates/s")
    parser.add_argument("--seeds", type=int, nargs="*", default=list(SEEDS))
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--episodes", type=int, default=_EPISODES, help="that each policy plays at the end")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    python = peers.find_python(peers.D3RLPY)
    if isinstance(python, str):
        peers.skip("offline over d3rlpy", python)
        return
    with tempfile.TemporaryDirectory() as folder:
        steps = Path(folder) / "steps.npz"
        digest = write_steps(ReplayArchive(asked.dataset), steps)
        for kind in asked.kinds:
            preset = f"{asked.task}-{kind}"
            peer = peers.Peer("d3rlpy_peer.py", python)
            if asked.updates is None:
                compare_rates(preset, asked.dataset, steps, peer, asked.rounds, asked.seconds)
            else:
                compare_returns(preset, asked, steps, digest, peer)
            peer.close()


def compare_rates(preset: str, dataset: Path, steps: Path, peer: peers.Peer, rounds: int, seconds: float) -> None:
    """Report updates/s of both, in alternating rounds."""
    with learning(preset, dataset, seed=0) as (config, learner, batches):
        peer.call("make", dataset=str(steps), seed=0, **peer_settings(config))
        begun = float(peer.call("run", updates=_UPDATES_TO_BEGIN))
        updates = max(_UPDATES_TO_BEGIN, int(seconds * begun))
        found = rotate(
            {
                "ours": lambda: rate(learner, batches, 2 * updates),
                "theirs": lambda: float(peer.call("run", updates=updates)),
            },
            rounds,
        )
        cost_s = round(learner.compile_seconds[0], 1)
    report(f"{preset} over d3rlpy", "updates/s", found["ours"], found["theirs"], aim=1.5, compile_cpu_s=cost_s)


def compare_returns(preset: str, asked: argparse.Namespace, steps: Path, digest: str, peer: peers.Peer) -> None:
    """Record the mean return of each seed and side that is not recorded, and report all."""
    what = (preset, asked.dataset.name, asked.updates)

    def recorded() -> dict[str, dict[int, float]]:
        return offline_returns.returns(offline_returns.read(asked.records), *what, asked.seeds, digest)

    for seed in asked.seeds:
        for side in SIDES:
            if seed in recorded()[side]:
                continue
            began_s = time.perf_counter()
            if side == "surreal":
                found = learn(preset, asked.dataset, asked.updates, seed, asked.episodes)
                versions = {"surreal": surreal.__version__}
            else:
                found = learn_there(peer, preset, steps, asked.updates, seed, asked.episodes)
                versions = {"d3rlpy": peer.call("version", package="d3rlpy")}
            line: dict[str, Any] = dict(zip(("preset", "dataset", "updates"), what, strict=True))
            line |= {"seed": seed, "side": side, "return": round(float(np.mean(found)), 2)}
            line |= {"deviation": round(float(np.std(found)), 2), "episodes": len(found)}
            line |= {"seconds": round(time.perf_counter() - began_s), "digest": digest}
            line["versions"] = versions | {name: version(name) for name in _PACKAGES}
            offline_returns.add(asked.records, line)
    ours, theirs = (list(found.values()) for found in recorded().values())
    error, mean = standard_error(theirs), float(np.mean(theirs))
    line = {"name": f"{preset} after {asked.updates} updates", "dataset": asked.dataset.name}
    line |= {"value": float(np.mean(ours)), "baseline": mean, "baseline_error": error, "aim": mean - error}
    peers.print_line({**line, "ours": ours, "theirs": theirs, "episodes": asked.episodes})


def learn(preset: str, dataset: Path, updates: int, seed: int, episodes: int) -> list[float]:
    """Train here, and give the returns of the policy."""
    with learning(preset, dataset, seed=seed) as (config, learner, batches):
        rate(learner, batches, updates - _UPDATES_TO_BEGIN)
        return returns(learner.model, config.env.id, episodes)


def learn_there(peer: peers.Peer, preset: str, steps: Path, updates: int, seed: int, episodes: int) -> list[float]:
    """Train with d3rlpy, and give the returns of its policy."""
    config = load_config(preset)
    peer.call("make", dataset=str(steps), seed=seed, gathers_at_once=True, **peer_settings(config))
    peer.call("run", updates=updates)
    return list(peer.call("returns", env=config.env.id, episodes=episodes))


@contextmanager
def learning(preset: str, dataset: Path, *, seed: int) -> Iterator[tuple[Config, Any, Any]]:
    """Import the dataset, and give the configuration, the learner and its batches, as a learner's process has them."""
    given = ["learner.compile=true", "learner.max_updates=1_000_000_000", f"seed={seed}"]
    config = load_config(preset, given)
    config = load_config(preset, [*given, *offline_overrides(config, ReplayArchive(dataset).manifest)])
    with EmbeddedRedis(maxmemory_bytes=2 << 30) as server, RedisClient(server.address, run="offline") as client:
        import_replay(client, dataset)
        model = build_model(config, build_spaces(config))
        replay = build_replay(config, ReplayShards.of(client), seed=seed)
        learner = build_learner(config, model, replay)
        replay.start_threads()
        try:
            batches = replay.batch_iterator()
            for i, batch in batches:
                learner.optimize(i, batch)
                if i >= _UPDATES_TO_BEGIN:
                    break
            yield config, learner, batches
        finally:
            replay.stop()
            replay.join()


def rate(learner: Any, batches: Any, updates: int) -> float:
    """Return updates/s."""
    began_s = time.perf_counter()
    for _ in range(updates):
        learner.optimize(*next(batches))
    return updates / (time.perf_counter() - began_s)


@torch.no_grad()
def returns(model: Any, env_id: str, episodes: int) -> list[float]:
    """Play an episode in each of several environments at once, without exploration."""
    envs = gymnasium.make_vec(env_id, num_envs=episodes)
    obs, _ = envs.reset(seed=1000)
    total, is_playing = np.zeros(episodes), np.ones(episodes, bool)
    while is_playing.any():
        output = model(torch.as_tensor(obs, dtype=torch.float32))
        action = output.mode() if isinstance(output, Distribution) else output
        obs, reward, terminated, truncated, _ = envs.step(action.numpy())
        total += reward * is_playing
        is_playing &= ~(terminated | truncated)
    return [float(each) for each in total]


def write_steps(archive: ReplayArchive, path: Path) -> str:
    """Write the archive's steps in their order, as arrays; returns a digest of them."""
    columns: dict[str, list[Any]] = {name: [] for name in ("observations", "actions", "rewards", "flags")}
    for chunk in archive.chunks():
        rows = np.cumsum(chunk.segments[:, 0])[:-1] - 1  # the last of each segment is what its last step led to
        columns["observations"].append(np.delete(chunk.leaves[0][:-1], rows, axis=0))
        for name, column in (("actions", "action"), ("rewards", "reward"), ("flags", "flags")):
            columns[name].append(chunk.columns[column])
    arrays = {name: np.concatenate(parts) for name, parts in columns.items()}
    flags = arrays.pop("flags")
    arrays |= {"terminals": (flags & 1) > 0, "timeouts": flags == 2}
    np.savez(path, **arrays)
    return hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()[:16]


def peer_settings(config: Config) -> dict[str, Any]:
    """Return d3rlpy's settings, by its names, for a preset."""
    kind, args = config.name.rpartition("-")[2], config.learner.args
    rate, critic = args["initial_learning_rate"], args.get("critic_learning_rate", args["initial_learning_rate"])
    settings: dict[str, Any] = {"actor_learning_rate": rate, "critic_learning_rate": critic}
    if kind == "bc":
        settings = {"learning_rate": rate}
    elif kind == "iql":
        settings |= {name: args[name] for name in ("expectile",)} | {"weight_temp": args["inverse_temperature"]}
    elif kind == "cql":
        # Both keep the weight as it is; d3rlpy changes it by default.
        settings |= {"conservative_weight": args["conservative_weight"], "alpha_learning_rate": 0.0}
        settings |= {"n_action_samples": args["conservative_actions"], "temp_learning_rate": rate}
    space: Any = gymnasium.make(config.env.id).action_space
    model = config.model.args
    settings |= {
        "hidden": model["hidden_sizes"],
        "scales": bool(model.get("normalize_obs")),
        "bound": space.high.tolist(),
    }
    return {"kind": kind, "settings": {**settings, "batch": config.learner.batch_size, "gamma": config.learner.gamma}}


if __name__ == "__main__":
    with nullcontext() if "--updates" in sys.argv else alone():  # returns do not depend on the machine's load
        main(sys.argv[1:])
