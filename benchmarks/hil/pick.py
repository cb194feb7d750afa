"""FetchPickAndPlace with 50 demonstrations of a scripted expert and hindsight experience replay.

    python -m benchmarks.hil.pick                      300,000 env steps: hours on two cores
    python -m benchmarks.hil.pick --steps 20000 --seed 1 --keep FOLDER
    python -m benchmarks.hil.pick --peer               sb3-contrib's TQC with hindsight instead, with the same settings

The demonstrations are imported into the replay before the run, so hindsight also draws goals from them. At the end, the
last and the best policy play 100 fresh episodes; an episode is a success if its last step is at the goal.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import peers
from benchmarks.hil.programs import Programs
from surreal.distributed import EmbeddedRedis, RedisClient
from surreal.replay.archive import import_replay

CONFIG = Path(__file__).with_name("pick.yaml")
_EPISODES = 100
_RUN, _EXPERT = "hil-pick", "benchmarks.hil.pick:Expert"
#: Action per m of the way.
_GAIN = 10.0
#: How near the gripper must be to close, m, and how far above the block it comes to it from the side.
_NEAR_M, _ASIDE_M, _ABOVE_M = 0.01, 0.02, 0.06
#: A block that is held may slip by this much; the fingers are then less than this apart, m.
_SLIP_M, _GRIPPED_M = 0.02, 0.055
#: Distance of the fingers that hold the block, m.
_HOLDING_M = 0.0505


class Expert:
    """Goes above the block, goes down, closes, and carries it to the goal; it has no memory, and can begin anywhere."""

    def __call__(self, obs: Mapping[str, NDArray[np.float64]], action: Any) -> NDArray[np.float32]:
        state = obs["observation"]
        block, way, fingers = state[3:6], state[6:9], float(state[9] + state[10])
        distance = np.linalg.norm(way)
        if distance > _NEAR_M and not (distance < _SLIP_M and fingers < _GRIPPED_M):
            above = _ABOVE_M if np.linalg.norm(way[:2]) > _ASIDE_M else 0.0
            return _action(way + np.array((0.0, 0.0, above)), 1.0)
        if fingers > _HOLDING_M:
            return _action(np.zeros(3), -1.0)
        return _action(obs["desired_goal"] - block, -1.0)


def _action(way_m: NDArray[np.float64], fingers: float) -> NDArray[np.float32]:
    return np.clip(np.append(way_m * _GAIN, fingers), -1.0, 1.0).astype(np.float32)


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark, and print its result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300_000, help="env steps, without those of the demonstrations")
    parser.add_argument("--demonstrations", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the results; default: a temporary one")
    parser.add_argument("--peer", action="store_true", help="measure sb3-contrib instead")
    asked = parser.parse_args(arguments)
    if asked.peer:
        python = peers.find_python(peers.ZOO)
        if isinstance(python, str):
            peers.skip("hil-pick, sb3-contrib", python)
            return
        words = (asked.steps, asked.demonstrations, asked.seed, _EPISODES)
        success = float(Programs(python).call(peers.script_path("pick_peer.py"), *words).splitlines()[-1])
        found = {"name": "hil-pick, sb3-contrib", "seed": asked.seed, "steps": asked.steps, "last_success": success}
        peers.print_line(found | {"episodes": _EPISODES})
        return
    folder = (asked.keep or Path(tempfile.mkdtemp(prefix="hil-"))).absolute()
    try:
        peers.print_line(measure(Programs(sys.executable), folder, asked))
    finally:
        if asked.keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def measure(programs: Programs, folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Record, train, and return the results."""
    folder.mkdir(parents=True, exist_ok=True)
    demonstrations, run_dir = folder / "demonstrations", folder / "run"
    if not demonstrations.exists():
        words = ("--expert", _EXPERT, "--episodes", asked.demonstrations, "--seed", asked.seed)
        programs.call("-m", "surreal", "record", CONFIG, "-o", demonstrations, *words)
    with EmbeddedRedis(maxmemory_bytes=1 << 30) as server, RedisClient(server.address, run=_RUN) as client:
        shown = import_replay(client, demonstrations).steps
        limit = f"run.max_env_steps={asked.steps + shown}"
        words = ("--redis", server.address, "--seed", asked.seed, "--quiet", "--set", limit)
        programs.call("-m", "surreal", "run", CONFIG, "--run", _RUN, "--run-dir", run_dir, *words)
    found: dict[str, Any] = {"name": "hil-pick", "seed": asked.seed, "steps": asked.steps, "demonstrated": shown}
    last = max((run_dir / "checkpoints").glob("*.safetensors"))
    for name, policy in (("last", last), ("best", run_dir)):
        found[f"{name}_success"], _ = programs.evaluate(policy, _EPISODES, asked.seed + 1_000_000)
    return found | {"episodes": _EPISODES}


if __name__ == "__main__":
    main(sys.argv[1:])
