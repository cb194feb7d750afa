"""Compare learning from recorded steps with d3rlpy: updates/s, and returns after as many updates.

    python -m benchmarks.offline DATASET [bc td3bc iql cql] [--task pendulum] [--rounds N] [--seconds S]
    python -m benchmarks.offline DATASET --updates 50000 --seeds 0 1 2

DATASET is an archive that `make datasets` records. Both learn from the same steps, with the preset's network, batches
and rates, on one thread. Surreal's batches come through Redis and a thread, as in `surreal run --offline`. Its updates
are compiled first, as they are in a long run, and d3rlpy's are what it makes by default.

With `--updates`, each return is added to benchmarks/offline_returns.jsonl, and what is recorded there is not run again.
d3rlpy's batches are then gathered at once, which changes its speed, and nothing that it learns from.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from benchmarks import peers
from benchmarks.alone import alone
from benchmarks.harness import report
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

KINDS = ("bc", "td3bc", "iql", "cql")
#: Mean returns, a line for each side and seed.
RECORDS = Path(__file__).with_name("offline_returns.jsonl")
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
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    python = peers.find_python(peers.D3RLPY)
    if isinstance(python, str):
        peers.skip("offline over d3rlpy", python)
        return
    with tempfile.TemporaryDirectory() as folder:
        steps = Path(folder) / "steps.npz"
        write_steps(ReplayArchive(asked.dataset), steps)
        for kind in asked.kinds:
            preset = f"{asked.task}-{kind}"
            peer = peers.Peer("d3rlpy_peer.py", python)
            if asked.updates is None:
                compare_rates(preset, asked.dataset, steps, peer, asked.rounds, asked.seconds)
            else:
                compare_returns(preset, asked.dataset, steps, peer, asked.updates, asked.seeds)
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


def compare_returns(preset: str, dataset: Path, steps: Path, peer: peers.Peer, updates: int, seeds: list[int]) -> None:
    """Record the mean return of each side and seed that is not recorded, and report all."""
    for seed in seeds:
        missing = {"surreal", "d3rlpy"} - set(recorded(preset, dataset.name, updates, [seed]))
        for side in sorted(missing):
            began_s = time.perf_counter()
            if side == "surreal":
                with learning(preset, dataset, seed=seed) as (config, learner, batches):
                    rate(learner, batches, updates - _UPDATES_TO_BEGIN)
                    found = returns(learner.model, config.env.id)
            else:
                config = load_config(preset)
                settings = peer_settings(config)
                peer.call("make", dataset=str(steps), seed=seed, gathers_at_once=True, **settings)
                peer.call("run", updates=updates)
                found = peer.call("returns", env=config.env.id, episodes=_EPISODES)
            line = {"preset": preset, "dataset": dataset.name, "updates": updates, "seed": seed, "side": side}
            figures = {"return": round(float(np.mean(found)), 2), "episodes": _EPISODES}
            with RECORDS.open("a") as file:
                file.write(json.dumps({**line, **figures, "seconds": round(time.perf_counter() - began_s)}) + "\n")
    sides = recorded(preset, dataset.name, updates, seeds)
    report_returns(f"{preset} after {updates} updates", dataset.name, sides["surreal"], sides["d3rlpy"])


def recorded(preset: str, dataset: str, updates: int, seeds: Sequence[int]) -> dict[str, list[float]]:
    """Return the recorded mean returns of each side."""
    found = dict[str, list[float]]()
    for text in RECORDS.read_text().splitlines() if RECORDS.exists() else ():
        line = json.loads(text)
        if (line["preset"], line["dataset"], line["updates"]) == (preset, dataset, updates) and line["seed"] in seeds:
            found.setdefault(line["side"], []).append(line["return"])
    return found


def report_returns(name: str, dataset: str, ours: list[float], theirs: list[float]) -> None:
    """Print one JSON object; the aim is d3rlpy's mean minus one standard error."""
    error = float(np.std(theirs, ddof=1) / len(theirs) ** 0.5) if len(theirs) > 1 else 0.0
    line = {"name": name, "dataset": dataset, "value": float(np.mean(ours)), "baseline": float(np.mean(theirs))}
    more = {"baseline_error": error, "aim": line["baseline"] - error, "ours": ours, "theirs": theirs}
    peers.print_line({**line, **more, "episodes": _EPISODES})


@contextmanager
def learning(preset: str, dataset: Path, *, seed: int) -> Iterator[tuple[Config, Any, Any]]:
    """Import the dataset, and give the configuration, the learner and its batches, as a learner's process has them."""
    given = ["learner.compile=true", "learner.max_updates=1_000_000_000", f"seed={seed}"]
    config = load_config(preset, given)
    config = load_config(preset, [*given, *offline_overrides(config, ReplayArchive(dataset).manifest)])
    with EmbeddedRedis(maxmemory_bytes=1 << 30) as server, RedisClient(server.address, run="offline") as client:
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
def returns(model: Any, env_id: str) -> list[float]:
    """Play an episode in each of several environments at once, without exploration."""
    envs = gymnasium.make_vec(env_id, num_envs=_EPISODES)
    obs, _ = envs.reset(seed=1000)
    total, is_playing = np.zeros(_EPISODES), np.ones(_EPISODES, bool)
    while is_playing.any():
        output = model(torch.as_tensor(obs))
        action = output.mode() if isinstance(output, Distribution) else output
        obs, reward, terminated, truncated, _ = envs.step(action.numpy())
        total += reward * is_playing
        is_playing &= ~(terminated | truncated)
    return [float(each) for each in total]


def write_steps(archive: ReplayArchive, path: Path) -> None:
    """Write the archive's steps in their order, as arrays."""
    columns: dict[str, list[Any]] = {name: [] for name in ("observations", "actions", "rewards", "flags")}
    for chunk in archive.chunks():
        rows = np.cumsum(chunk.segments[:, 0])[:-1] - 1  # the last of each segment is what its last step led to
        columns["observations"].append(np.delete(chunk.leaves[0][:-1], rows, axis=0))
        for name, column in (("actions", "action"), ("rewards", "reward"), ("flags", "flags")):
            columns[name].append(chunk.columns[column])
    arrays = {name: np.concatenate(parts) for name, parts in columns.items()}
    flags = arrays.pop("flags")
    np.savez(path, terminals=(flags & 1) > 0, timeouts=flags == 2, **arrays)


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
