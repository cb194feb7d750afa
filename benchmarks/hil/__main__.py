"""Teach gym-hil's arm to lift a cube while the learner and the agents are killed, and report what was learned and lost.

    python -m benchmarks.hil                                    20 kills, an hour of simulated time
    python -m benchmarks.hil --minutes 20 --every 30 --seed 1
    python -m benchmarks.hil --keep FOLDER                      keep the demonstrations, the run and the reports there

It records 20 demonstrations of the scripted expert, then runs `cube.yaml` (RLPD) with the scripted teacher. `surreal
chaos` kills learner and agents meanwhile, and compares what was acknowledged with what is stored. At the end, the last
and the best policy play 100 fresh episodes without the teacher. The teacher's share is counted in the replay's steps.

gym-hil is installed under .cache when it is missing; MuJoCo needs OSMesa (Debian's libosmesa6).
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import peers
from benchmarks.hil.cube import STEP_S
from benchmarks.hil.programs import Programs, wait_for_steps
from surreal.base.types import IS_INTERVENTION
from surreal.distributed import EmbeddedRedis, RedisClient
from surreal.distributed.experience.data_contract import EXTRA_PREFIX
from surreal.replay.archive import ReplayArchive, export_replay
from surreal.run.process.registry import request_stop

CONFIG = Path(__file__).with_name("cube.yaml")
_EXPERT = "benchmarks.hil.teacher:Expert"
_EPISODES = 100
_STEPS_PER_MINUTE = round(60 / STEP_S)
#: Part of the run in which the teacher's share is judged, min.
_LAST_MINUTES = 10
_RUN = "hil"


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; return 1 if the run could not be made."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="simulated time, of all arms together")
    parser.add_argument("--demonstrations", type=int, default=20)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--every", type=float, default=60.0, help="mean time between two kills, s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="a setting of the run")
    parser.add_argument("--keep", type=Path, help="folder for the results; default: a temporary one")
    asked = parser.parse_args(arguments)
    python = peers.find_python(peers.GYM_HIL)
    if isinstance(python, str):
        peers.skip("hil", python)
        return 1
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="hil-"))
    try:
        peers.print_line(measure(Programs(python), folder.absolute(), asked))
    finally:
        if asked.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0


def measure(programs: Programs, folder: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Record, train under kills, and return the results."""
    folder.mkdir(parents=True, exist_ok=True)
    demonstrations, run_dir, report = folder / "demonstrations", folder / "run", folder / "chaos.json"
    if not demonstrations.exists():
        words = ("--expert", _EXPERT, "--episodes", asked.demonstrations, "--seed", asked.seed)
        programs.call("-m", "surreal", "record", CONFIG, "-o", demonstrations, *words)
    steps = round(asked.minutes * _STEPS_PER_MINUTE)
    # It ends when this program has read the replay, which the run removes at its end.
    settings = [f"replay.args.demonstrations={demonstrations}", "run.max_env_steps=1_000_000_000", *asked.set]
    options = [word for setting in settings for word in ("--set", setting)]
    place = ("--run", _RUN, "--run-dir", run_dir)
    with EmbeddedRedis(maxmemory_bytes=512 << 20) as server, RedisClient(server.address, run=_RUN) as client:
        words = ("--redis", server.address, "--seed", asked.seed, "--quiet", *options)
        run = programs.start("-m", "surreal", "run", CONFIG, *place, *words)
        try:
            wait_for_steps(client, run, 1)
            words = ("--kill", "learner,agent", "--most", asked.kills, "--every", asked.every, "--for", 1_000_000)
            words += ("--within", 180, "--seed", asked.seed, "--report", report)
            chaos = programs.start("-m", "surreal", "chaos", *place[1:], "--address", server.address, *words)
            wait_for_steps(client, run, steps)
            chaos.send_signal(signal.SIGINT)  # if it is still running
            chaos.wait()
            manifest = export_replay(client, folder / "steps")
            request_stop(client, f"{asked.minutes:g} minutes were simulated")
            run.wait()
        finally:
            run.kill()
    flags = taught_steps(ReplayArchive(folder / "steps"))
    result = json.loads((run_dir / "result.json").read_text())
    last = max((run_dir / "checkpoints").glob("*.safetensors"))
    found: dict[str, Any] = {"name": "hil", "seed": asked.seed}
    found["simulated_min"] = round(result["env_steps"] / _STEPS_PER_MINUTE, 1)
    for name, policy in (("last", last), ("best", run_dir)):
        success, length = programs.evaluate(policy, _EPISODES, asked.seed + 1_000_000)
        found |= {f"{name}_success": success, f"{name}_steps": length}
    found |= {"episodes": _EPISODES, **shares(flags), "updates": result["updates"], "restarts": result["restarts"]}
    found |= {"counted_steps": manifest.global_step, "stored_steps": len(flags)}
    return found | summary(json.loads(report.read_text()))


def taught_steps(archive: ReplayArchive) -> NDArray[np.bool_]:
    """Return for each step of a run, in the order in which it was stored, whether the teacher chose it."""
    found = list[NDArray[Any]]()
    for chunk in archive.chunks():
        column, begin = chunk.columns[EXTRA_PREFIX + IS_INTERVENTION], 0
        for rows, own, _, _, history in chunk.segments:
            found.append(column[begin : begin + own])
            begin += rows - history - 1  # the others are lookahead, which the next chunk owns
    return np.concatenate(found).astype(bool)


def shares(flags: NDArray[np.bool_]) -> dict[str, float]:
    """Return the teacher's share of all steps, and of those of the last minutes."""
    last = flags[-_LAST_MINUTES * _STEPS_PER_MINUTE :]
    return {"teacher_share": round(float(flags.mean()), 4), "teacher_share_last": round(float(last.mean()), 4)}


def summary(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return from a report of `surreal chaos` how often each role was killed, and which invariants are broken."""
    kills: dict[str, int] = {}
    for each in report["disturbances"]:
        role = each["target"].split("-")[0]
        kills[role] = kills.get(role, 0) + 1
    broken = [each["name"] for each in report["invariants"] if not each["holds"]]
    return {"kills": kills, "invariants": len(report["invariants"]), "broken": broken}


if __name__ == "__main__":
    sys.exit(main())
