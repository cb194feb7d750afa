"""Run presets over seeds, two at once; record results and curves, and write docs/results.md and the presets' headers.

    python -m benchmarks.learn                                what is missing of the queue, in its order
    python -m benchmarks.learn --list                         only list it
    python -m benchmarks.learn cartpole-ppo --seeds 0 1 2     run these again
    python -m benchmarks.learn --at-agents                    gradients at the agents, and at the learner
    python -m benchmarks.learn --pong                         half a million env steps of Pong
    python -m benchmarks.learn --timed --seeds 0              returns in a time; with nothing else on the machine
    python -m benchmarks.learn --write                        only draw the pictures, and write the page and headers

Each run is `surreal run PRESET --seed N --verify`, at a low priority. It ends when its evaluation reaches the preset's
goal, or after its env steps; then the best policy plays 1000 fresh episodes (Atari: 100). Runs are kept in
`$SURREAL_LEARN` (default: ~/.local/share/surreal/learn), and one that was interrupted continues with its newest
checkpoint. While a benchmark measures on this machine, runs stop, and that time does not count.

Presets for recorded experience learn from the dataset that their header names, in `$SURREAL_DATASETS` (default:
datasets), where `make datasets` records it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.alone import Span, overlap_s, run_between_benchmarks
from benchmarks.curves import draw_all, has_curve, read_run, write_curve
from benchmarks.headers import PLAYED, write_headers
from benchmarks.references import TIMED
from benchmarks.results import PONG, add_record, read_records, rows_at_agents, settings_at_agents, write_page
from surreal.config import preset_names
from surreal.config.preset_files import preset_path
from surreal.run.process.ending import ExitCode

#: Kinds of tasks in the order in which they run; presets of a kind have these prefixes.
QUEUE = (
    ("bandit", "bitflip", "cartpole", "acrobot", "pendulum", "mountaincar"),
    ("lunarlander",),
    ("fetchreach", "halfcheetah", "hopper", "atari-ppo"),
    ("walker2d", "ant", "humanoid", "bipedalwalker"),
    ("minigrid", "dmcontrol", "tictactoe", "vizdoom"),
    ("atari-a2c", "atari-breakout", "atari-dqn", "atari-r2d2", "atari-rainbow", "atari-vtrace"),
)
#: A learner needs about one core.
_AT_ONCE = 2
#: Episodes that verify a policy; those of Atari, and of aims in seconds, which take too long for 1000.
_EPISODES = 1000
_FEW_EPISODES = 100
_SENTENCE = re.compile(
    r"(?:(?:not )?solved|played) \S+: mean return (\S+) \(standard error (\S+)\) over (\d+) episodes, (\d+) env steps"
)

#: Preset, settings, seed.
Job = tuple[str, tuple[str, ...], int]


def main(argv: Sequence[str]) -> int:
    """Run the requested jobs, and write the page; return 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", help="run these, even if they are recorded (default: the queue)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--at-agents", action="store_true", help="run what is missing in the second table")
    parser.add_argument("--pong", action="store_true", help="run what is missing in the third table")
    parser.add_argument("--timed", action="store_true", help="run what is missing of the aims in seconds, one by one")
    parser.add_argument("--list", action="store_true", help="only list the jobs")
    parser.add_argument(
        "--write", action="store_true", help="only draw the pictures, and write the page and the headers of the presets"
    )
    asked = parser.parse_args(argv)
    jobs = [] if asked.write else _jobs(asked)
    if asked.list:
        sys.stdout.writelines(f"{preset} {seed} {' '.join(settings)}\n" for preset, settings, seed in jobs)
        return 0
    has_failed, lock = False, threading.Lock()

    def work(job: Job) -> None:
        nonlocal has_failed
        record = run(*job)
        if record is None:
            return
        with lock:
            has_failed |= "error" in record
            sys.stdout.write(json.dumps(record) + "\n")
            sys.stdout.flush()
            add_record(record)

    with ThreadPoolExecutor(1 if asked.timed else _AT_ONCE) as pool:
        try:
            for ended in [pool.submit(work, job) for job in jobs]:
                ended.result()
        except BaseException:  # Ctrl-C, which runs in progress get as well
            pool.shutdown(cancel_futures=True)
            raise
    draw_all()
    write_page()
    write_headers(read_records())
    return int(has_failed)


def runs_folder() -> Path:
    """Return the folder of all runs, outside of the checkout."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return Path(os.environ.get("SURREAL_LEARN") or data / "surreal" / "learn")


def run(preset: str, settings: Sequence[str], seed: int) -> dict[str, Any] | None:
    """Run a preset with some settings changed, or continue its run.

    Returns:
        A record of a table; None if a signal ended the run in order, which continues next time.
    """
    record: dict[str, Any] = {"preset": preset, "seed": seed, "machine": f"{os.cpu_count()} cores {platform.machine()}"}
    if settings:
        record["settings"] = list(settings)
    name = "-".join([preset, str(seed), *(re.sub(r"[^\w.]+", "-", setting) for setting in settings)])
    run_dir = runs_folder() / name[:200]
    spans = run_dir.with_suffix(".spans")
    if (run_dir / "result.json").exists() and json.loads((run_dir / "result.json").read_text())["status"] == "finished":
        raise FileExistsError(f"{run_dir} holds a finished run; delete it to run {preset} again")
    active = [Span(*each) for each in json.loads(spans.read_text())] if spans.exists() else []
    try:
        ended = run_between_benchmarks(_command(preset, settings, seed, run_dir), active)
    finally:
        if run_dir.exists():
            spans.write_text(json.dumps(active))
    if ended.returncode in (ExitCode.INTERRUPTED, ExitCode.TERMINATED):
        return None
    if settings:
        record["env_steps_per_s"] = _rate(run_dir, active)
    found = _SENTENCE.search(ended.stdout)
    if found is None:
        lines = (ended.stderr or ended.stdout).strip().splitlines()
        return {**record, "error": lines[-1] if lines else f"ended with {ended.returncode}", "run_dir": str(run_dir)}
    if not settings or _is_timed(preset, settings):
        write_curve(read_run(run_dir, active), preset, seed)
    mean, standard_error, episodes, env_steps = found.groups()
    return {
        **record,
        "return": float(mean),
        "standard_error": float(standard_error),
        "episodes": int(episodes),
        "env_steps": int(env_steps),
        "seconds": round(sum(span.ended_s - span.began_s for span in active)),
    }


def preset_dataset(preset: str) -> str | None:
    """Return the dataset that the header of a preset for recorded experience names."""
    found = re.search(r"^# .*--offline datasets/([\w-]+)", preset_path(preset).read_text(encoding="utf-8"))
    return found[1] if found else None


def _command(preset: str, settings: Sequence[str], seed: int, run_dir: Path) -> list[str]:
    command = ["nice", "-n", "10", sys.executable, "-m", "surreal", "run", "--run-dir", str(run_dir), "--quiet"]
    is_short = preset.startswith("atari") or _is_timed(preset, settings)
    command += ["--verify", "--verify-episodes", str(_FEW_EPISODES if is_short else _EPISODES)]
    if (run_dir / "run.id").exists():
        return [*command, "--resume"]
    if dataset := preset_dataset(preset):
        command += ["--offline", os.path.join(os.environ.get("SURREAL_DATASETS", "datasets"), dataset)]
    return [*command, preset, "--seed", str(seed), *(part for each in settings for part in ("--set", each))]


def _is_timed(preset: str, settings: Sequence[str]) -> bool:
    """Whether the settings only end the run earlier, at an aim."""
    return preset in TIMED and tuple(settings) == TIMED[preset].settings


def _rate(run_dir: Path, active: Sequence[Span]) -> float | None:
    """Return env steps a second between the first and last metrics line with an update; None without two of them."""
    found = []
    for line in (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["process"].startswith(("learner", "ps")) and record["metrics"].get("learner/updates_total"):
            found.append((record["time"], record["step"]))
    if len(found) < 2 or found[-1][0] == found[0][0]:
        return None
    (began_s, first), (ended_s, last) = found[0], found[-1]
    return float((last - first) / overlap_s(active, began_s, ended_s))


def _jobs(asked: argparse.Namespace) -> list[Job]:
    there = read_records()
    if asked.at_agents:
        rows = [(preset, settings_at_agents(preset, rule, agents), 0) for preset, rule, agents in rows_at_agents()]
        return [job for job in rows if job[:2] not in there]
    if asked.pong:
        return [(preset, settings, 0) for preset, settings in PONG.items() if (preset, settings) not in there]
    if asked.timed:
        rows = [(preset, aim.settings, seed) for seed in asked.seeds for preset, aim in TIMED.items()]
        return [job for job in rows if job[2] not in there.get(job[:2], {})]
    if asked.presets:
        return [(preset, (), seed) for preset in asked.presets for seed in asked.seeds]
    return [
        (preset, (), seed)
        for prefixes in QUEUE
        for seed in asked.seeds
        for preset in preset_names()
        if preset.startswith(prefixes)
        and preset not in PLAYED
        and not (has_curve(preset, seed) and "standard_error" in there.get((preset, ()), {}).get(seed, {}))
    ]


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(int(ExitCode.INTERRUPTED))
