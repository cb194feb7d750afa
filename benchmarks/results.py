"""Run presets over seeds, record the results in benchmarks/results.jsonl, and write docs/results.md.

    python -m benchmarks.results                          run small tasks that are missing in the table
    python -m benchmarks.results cartpole-ppo --seeds 0 1 2   run these presets again
    python -m benchmarks.results --at-agents              compare gradients at the agents with gradients at the learner
    python -m benchmarks.results --pong                   run half a million env steps of Pong
    python -m benchmarks.results --write                  only write the page

Each run is `surreal run PRESET --seed N --verify`. It ends when its evaluation reaches the preset's goal, or after its
env steps; then the best policy plays 1000 fresh episodes (Atari: 100). A reference counts as reached only if their mean
return minus 1.645 standard errors reaches it. A run stops while a benchmark measures on this machine, and its seconds
exclude that time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.alone import Pause, paused_s, run_between_benchmarks
from benchmarks.references import REFERENCES
from surreal.config import load_config, preset_names

_ROOT = Path(__file__).parents[1]
_RECORDS = Path(__file__).with_name("results.jsonl")
_PAGE = _ROOT / "docs" / "results.md"
#: Tasks that take minutes on two cores.
_SMALL = ("bandit", "cartpole", "acrobot", "pendulum")
#: Episodes that verify a policy. Atari's episodes take too long for 1000.
_EPISODES = 1000
_ATARI_EPISODES = 100
#: Standard errors below the mean that confirm a reference, one-sided at 95 %.
_ONE_SIDED_95 = 1.645
_SENTENCE = re.compile(
    r"(?:(?:not )?solved|played) \S+: mean return (\S+) \(standard error (\S+)\) over (\d+) episodes, "
    r"(\d+) env steps, (\d+) s"
)

#: Preset, settings, seed.
Job = tuple[str, tuple[str, ...], int]
Records = dict[tuple[str, tuple[str, ...]], dict[int, Mapping[str, Any]]]

#: Rules for turning gradients into steps, with their settings; the first one computes gradients at the learner.
_RULES = {
    "learner": ("learner.gradients=learner",),
    "fifo": ("learner.gradients=agents", "learner.combine_gradients=fifo"),
    "avg": ("learner.gradients=agents", "learner.combine_gradients=avg"),
    "dc": ("learner.gradients=agents", "learner.combine_gradients=dc"),
}
#: Presets that run with each rule, their numbers of agents, and settings that end each within minutes.
_AT_AGENTS: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "cartpole-a3c": ((1, 2, 4), ("run.max_env_steps=300_000",)),
    "pendulum-a3c": ((2, 4), ()),
    "pendulum-ddpg": (
        (2, 4),
        (
            "run.max_env_steps=20_000",
            "run.stop_at_return=-160",
            "eval.confirm_episodes=400",
            "model.args.hidden_sizes=[64,64]",
        ),
    ),
}

#: Presets that play Pong for a twentieth of their env steps; their schedules still have the full length.
_PONG_RUN = ("run.max_env_steps=500_000", "learner.args.max_global_step=10_000_000", "eval.interval_s=120")
_PONG = {
    "atari-ppo": _PONG_RUN,
    # With 32 trajectories of 20 steps, half a million env steps would be only 780 updates.
    "atari-vtrace": (*_PONG_RUN, "learner.batch_size=8", "replay.max_bytes=16mb"),
}

_HEAD = """\
# Results

This page is written by `make learn`. Each row is `surreal run PRESET --seed N --verify` for some seeds. A run ends when
its evaluation confirms the preset's goal (`run.stop_at_return`), or with its env steps. Its best policy then plays 1000
fresh episodes (Atari: 100) without exploration. `return` is their mean return: the mean over the seeds, and the range.
Env steps and seconds are medians over the seeds, from the start of the command to its end; other work on the machine
increases the seconds. Runs stop while a benchmark measures, and that time does not count. A goal is the return at which
a run ends, not the highest that a preset can reach. The references are those of RL Baselines3 Zoo, with the env steps
that they took. Those of LunarLander were measured on its version 2. For A2C, which scores much lower on version 3,
Stable-Baselines3 was run there with these settings. The Zoo has no R2D2 and no interpolated policy gradient. R2D2 is
compared with Gymnasium's threshold for a solved CartPole, and interpolated policy gradient with PPO's reference.

The last column gives the seeds that reached the reference, or the goal if there is none, confirmed one-sided at 95 %:
the mean return of the fresh episodes, less 1.645 standard errors, is at least as high. `not confirmed` means that no
seed did, or that the standard error was not recorded. `not run` means that there is no result of the whole preset with
its present settings: it takes hours, needs something that was not available, or has changed since it was run. Other
pages may report results of an older version, of fewer env steps, or with other settings. Results of on-policy presets
other than `lunarlander-a2c` are older than [exact rounds](algorithms.md#on-policy-algorithms).

"""

_AT_AGENTS_HEAD = """
## Gradients at the agents

This table compares runs whose gradients are computed at the agents, and combined as in [Gradients](gradients.md), with
runs that compute them at the learner: `--set agent.count=N --set learner.gradients=agents --set
learner.combine_gradients=RULE` (`avg` with `num_gradients` of N; at the learner, A3C is A2C, whose updates wait for all
agents). Env steps per second are counted from the first update to the end, while the evaluation also runs; all
processes of a run share two cores. Runs end at 300,000 env steps (CartPole), 1,000,000 (A3C on Pendulum) and 20,000
(DDPG, with layers of 64 units), or at their goals: 500, -160 and -160.

| preset | gradients | agents | seeds | return | env steps | seconds | env steps/s |
|---|---|---|---|---|---|---|---|
"""


_PONG_HEAD = """
## Half a million steps of Pong

`surreal run PRESET --set run.max_env_steps=500_000 --set learner.args.max_global_step=10_000_000 --set
eval.interval_s=120`: a twentieth of the preset's env steps, with the schedules of the full number. A policy that never
moves loses by 21. V-trace learns from 8 trajectories at once (`--set learner.batch_size=8`), because with 32 there
would be only 780 updates. A small queue keeps it close to its agents (`--set replay.max_bytes=16mb`).

| preset | seeds | return | env steps | seconds | env steps/s |
|---|---|---|---|---|---|
"""


def main(argv: Sequence[str]) -> int:
    """Run the requested presets, and write the page; return 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", help="run these, even if they are in the table (default: missing ones)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--at-agents", action="store_true", help="run what is missing in the second table")
    parser.add_argument("--pong", action="store_true", help="run what is missing in the third table")
    parser.add_argument("--write", action="store_true", help="only write the page")
    asked = parser.parse_args(argv)
    has_failed = False
    if not asked.write:
        for preset, settings, seed in _jobs(asked):
            record = run(preset, seed, settings)
            has_failed |= "error" in record
            sys.stdout.write(json.dumps(record) + "\n")
            sys.stdout.flush()
            with _RECORDS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
    _PAGE.write_text(page(read_records()), encoding="utf-8")
    return int(has_failed)


def run(preset: str, seed: int, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Run a preset with some settings changed, and return a record of a table."""
    record: dict[str, Any] = {"preset": preset, "seed": seed, "machine": f"{os.cpu_count()} cores {platform.machine()}"}
    if settings:
        record["settings"] = list(settings)
    folder = tempfile.mkdtemp(prefix=f"{preset}-{seed}-")
    episodes = str(_ATARI_EPISODES if preset.startswith("atari") else _EPISODES)
    command = [sys.executable, "-m", "surreal", "run", preset, "--seed", str(seed), "--quiet"]
    command += ["--verify", "--verify-episodes", episodes, *(part for each in settings for part in ("--set", each))]
    run_dir = Path(folder) / "run"
    began_s = time.time()
    ended = run_between_benchmarks([*command, "--run-dir", str(run_dir)])
    if settings:
        record["env_steps_per_s"] = _rate(run_dir, ended.pauses)
    found = _SENTENCE.search(ended.stdout)
    if found is None:
        lines = (ended.stderr or ended.stdout).strip().splitlines()
        return {**record, "error": lines[-1] if lines else f"ended with {ended.returncode}", "run_dir": str(run_dir)}
    shutil.rmtree(folder, ignore_errors=True)
    mean, standard_error, episodes, env_steps, seconds = found.groups()
    return {
        **record,
        "return": float(mean),
        "standard_error": float(standard_error),
        "episodes": int(episodes),
        "env_steps": int(env_steps),
        "seconds": round(int(seconds) - paused_s(ended.pauses, began_s, began_s + int(seconds))),
    }


def _rate(run_dir: Path, pauses: Sequence[Pause]) -> float | None:
    """Return env steps a second between the first and last metrics line with an update; None without two of them."""
    found = []
    for line in (run_dir / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["process"].startswith(("learner", "ps")) and record["metrics"].get("learner/updates_total"):
            found.append((record["time"], record["step"]))
    if len(found) < 2 or found[-1][0] == found[0][0]:
        return None
    (began_s, first), (ended_s, last) = found[0], found[-1]
    return float((last - first) / (ended_s - began_s - paused_s(pauses, began_s, ended_s)))


def read_records() -> Records:
    """Read the records: preset and settings -> seed -> its newest record."""
    found: Records = defaultdict(dict)
    if _RECORDS.exists():
        for line in _RECORDS.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            found[record["preset"], tuple(record.get("settings", ()))][record["seed"]] = record
    return found


def page(records: Records) -> str:
    """Write the tables."""
    lines = [
        "| preset | seeds | return | goal | env steps | seconds | reference | reached |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for preset in preset_names():
        of_seeds = [record for _, record in sorted(records.get((preset, ()), {}).items())]
        lines.append(f"| `{preset}` | {' | '.join(_cells(preset, of_seeds))} |")
    lines += ["", *_AT_AGENTS_HEAD.strip().splitlines()]
    for preset, rule, agents in _at_agents():
        of_seeds = [record for _, record in sorted(records.get((preset, _settings(preset, rule, agents)), {}).items())]
        lines.append(f"| `{preset}` | {rule} | {agents} | {' | '.join(_cells_at_agents(of_seeds))} |")
    lines += ["", *_PONG_HEAD.strip().splitlines()]
    for preset, settings in _PONG.items():
        of_seeds = [record for _, record in sorted(records.get((preset, settings), {}).items())]
        lines.append(f"| `{preset}` | {' | '.join(_cells_at_agents(of_seeds))} |")
    machines = sorted({record["machine"] for seeds in records.values() for record in seeds.values()})
    return _HEAD + "\n".join(lines) + f"\n\nRun on: {', '.join(machines)}.\n"


def _cells(preset: str, records: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    goal = load_config(preset).run.stop_at_return
    reference = REFERENCES.get(preset)
    ended = [record for record in records if "error" not in record]
    seeds, returns, env_steps, seconds = _shared_cells(records, ended)
    yield from (seeds, returns, "" if goal is None else f"{goal:g}", env_steps, seconds)
    yield "" if reference is None else f"{reference.mean_return:g} in {reference.env_steps:,}"
    least = goal if reference is None else reference.mean_return
    reached = sum(least is not None and is_confirmed(record, least) for record in ended)
    yield f"{reached} of {len(records)}" if reached else "not confirmed" if records and least is not None else ""


def is_confirmed(record: Mapping[str, Any], least: float) -> bool:
    """Whether a run's fresh episodes show, one-sided at 95 %, that its policy reaches a mean return."""
    error = record.get("standard_error")
    return error is not None and record["return"] - _ONE_SIDED_95 * error >= least


def _cells_at_agents(records: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    ended = [record for record in records if "error" not in record]
    yield from _shared_cells(records, ended)
    rates = [record["env_steps_per_s"] for record in ended if record.get("env_steps_per_s")]
    yield f"{statistics.median(rates):,.0f}" if rates else ""


def _shared_cells(records: Sequence[Mapping[str, Any]], ended: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Format seeds, return, env steps and seconds."""
    seeds = ", ".join(str(record["seed"]) for record in records) or "not run"
    if not ended:
        return seeds, "", "", ""
    returns = [record["return"] for record in ended]
    spread = f" ({min(returns):.4g} .. {max(returns):.4g})" if len(returns) > 1 else ""
    env_steps, seconds = (statistics.median(record[key] for record in ended) for key in ("env_steps", "seconds"))
    return seeds, f"{statistics.fmean(returns):.4g}{spread}", f"{env_steps:,.0f}", f"{seconds:.0f}"


def _at_agents() -> list[tuple[str, str, int]]:
    """Return preset, rule and number of agents of each row of the second table."""
    rows = [
        (preset, rule, agents) for preset, (counts, _) in _AT_AGENTS.items() for agents in counts for rule in _RULES
    ]
    return [row for row in rows if row[2] > 1 or row[1] in ("learner", "fifo")]  # with one agent, all rules are equal


def _settings(preset: str, rule: str, agents: int) -> tuple[str, ...]:
    share = (f"learner.num_gradients={agents}",) if rule == "avg" else ()
    if (
        rule == "learner" and agents > 1 and preset.endswith("a3c")
    ):  # for A3C, this rule is A2C: one update from all agents' parts
        share = (f"learner.batch_size={load_config(preset).env.num_envs * agents}",)
    return (f"agent.count={agents}", *_RULES[rule], *share, *_AT_AGENTS[preset][1])


def _jobs(asked: argparse.Namespace) -> list[Job]:
    if asked.at_agents:
        return _to_run_at_agents()
    if asked.pong:
        there = read_records()
        return [(preset, settings, 0) for preset, settings in _PONG.items() if (preset, settings) not in there]
    return _to_run(asked.presets, asked.seeds)


def _to_run(presets: Sequence[str], seeds: Sequence[int]) -> list[Job]:
    if presets:
        return [(preset, (), seed) for preset in presets for seed in seeds]
    there = read_records()
    small = [name for name in preset_names() if name.startswith(_SMALL) and not name.endswith("rlx")]
    return [
        (preset, (), seed)
        for preset in small
        for seed in seeds
        if "standard_error" not in there.get((preset, ()), {}).get(seed, {})
    ]


def _to_run_at_agents() -> list[Job]:
    there = read_records()
    jobs = [(preset, _settings(preset, rule, agents), 0) for preset, rule, agents in _at_agents()]
    return [job for job in jobs if job[:2] not in there]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
