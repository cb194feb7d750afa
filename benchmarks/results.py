"""The records of `make learn` in benchmarks/results.jsonl, and docs/results.md, which is written from them."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import zoo
from benchmarks.curves import pictures
from benchmarks.references import AIMS, REFERENCES, TIMED
from surreal.config import load_config, preset_names

_ROOT = Path(__file__).parents[1]
RECORDS = Path(__file__).with_name("results.jsonl")
_PAGE = _ROOT / "docs" / "results.md"
#: Standard errors below the mean that confirm a reference, one-sided at 95 %.
_ONE_SIDED_95 = 1.645

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
PONG = {
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
that they took. Those of LunarLander were measured on its version 2. Those of Walker2d, Ant and Humanoid are Tianshou's,
on version 3. The Zoo has no R2D2 and no interpolated policy gradient. R2D2 is compared with Gymnasium's threshold for a
solved CartPole, and interpolated policy gradient with PPO's reference. The references of CrossQ, Simba, XQC and
FlashSAC are their papers', on version 4; that of PQN is also its paper's.

The last column gives the seeds that reached the reference, or the goal if there is none, confirmed one-sided at 95 %:
the mean return of the fresh episodes, less 1.645 standard errors, is at least as high. `not confirmed` means that no
seed did, or that the standard error was not recorded. `not run` means that there is no result of the whole preset with
its present settings: it takes hours, needs something that was not available, or has changed since it was run. Other
pages may report results of an older version, of fewer env steps, or with other settings. Env steps of presets for
recorded experience are those of the dataset. Most results of on-policy presets are older than [exact
rounds](algorithms/on-policy.md).

"""

_AIMS_HEAD = """
## Aims

These are published results that the presets should reach, with the mean over the seeds, within the env
steps. FetchReach with HER should reach every goal after 20,000 env steps: the policies of seeds 1 and 2 reached all of
120 goals after 4,808 and 5,348. CartPole should be solved within 4 s of learning, which has no record yet.

| preset | aim | of | seeds | return | env steps | reached |
|---|---|---|---|---|---|---|
"""

_TIMED_HEAD = """
These runs should reach a return in a time on two cores, from the start of the command to its end: `surreal run PRESET
--verify --set run.stop_at_return=AIM --set eval.confirm_episodes=100`, with a `run.max_time_s` 100 s shorter (`python
-m benchmarks.learn --timed`). The best policy then plays 100 fresh episodes, and the seconds include these.

| preset | aim | seeds | return | env steps | seconds | reached |
|---|---|---|---|---|---|---|
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


_CURVES_HEAD = """
## Curves

`make learn` leaves a CSV of each run in `benchmarks/curves`: env steps, seconds and mean return of each round of its
evaluation. `python -m benchmarks.curves` draws these pictures from them: the interquartile mean over the seeds with its
95 % interval, or the curve of a single seed, labeled as such. Runs end at their goal, at different env steps.
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


def add_record(record: Mapping[str, Any]) -> None:
    """Append a record to benchmarks/results.jsonl."""
    with RECORDS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def write_page() -> None:
    """Write docs/results.md."""
    _PAGE.write_text(page(read_records(), zoo.read_records()), encoding="utf-8")


def read_records() -> Records:
    """Read the records: preset and settings -> seed -> its newest record."""
    found: Records = defaultdict(dict)
    if RECORDS.exists():
        for line in RECORDS.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            found[record["preset"], tuple(record.get("settings", ()))][record["seed"]] = record
    return found


def page(records: Records, theirs: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> str:
    """Write the tables; `theirs` are records of the Zoo's twins: preset -> seed -> record."""
    lines = [
        "| preset | seeds | return | goal | env steps | seconds | reference | reached |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for preset in preset_names():
        of_seeds = [record for _, record in sorted(records.get((preset, ()), {}).items())]
        lines.append(f"| `{preset}` | {' | '.join(_cells(preset, of_seeds))} |")
    lines += ["", *_AIMS_HEAD.strip().splitlines(), *aim_rows(records)]
    lines += ["", *_TIMED_HEAD.strip().splitlines(), *timed_rows(records)]
    ours = {
        preset: [each for each in records.get((preset, ()), {}).values() if "error" not in each] for preset in theirs
    }
    lines += ["", *zoo.HEAD.strip().splitlines()]
    lines += zoo.rows(ours, {preset: list(of_seeds.values()) for preset, of_seeds in theirs.items()})
    lines += ["", *_AT_AGENTS_HEAD.strip().splitlines()]
    for preset, rule, agents in rows_at_agents():
        of_seeds = [
            record for _, record in sorted(records.get((preset, settings_at_agents(preset, rule, agents)), {}).items())
        ]
        lines.append(f"| `{preset}` | {rule} | {agents} | {' | '.join(_cells_at_agents(of_seeds))} |")
    lines += ["", *_PONG_HEAD.strip().splitlines()]
    for preset, settings in PONG.items():
        of_seeds = [record for _, record in sorted(records.get((preset, settings), {}).items())]
        lines.append(f"| `{preset}` | {' | '.join(_cells_at_agents(of_seeds))} |")
    lines += ["", *_CURVES_HEAD.strip().splitlines(), ""]
    lines += [f"![{path.stem}: mean return over env steps](images/curves/{path.name})" for path in pictures()]
    machines = sorted({record["machine"] for seeds in records.values() for record in seeds.values()})
    return _HEAD + "\n".join(lines) + f"\n\nRun on: {', '.join(machines)}.\n"


def aim_rows(records: Records) -> Iterable[str]:
    """Yield the rows of the table of aims."""
    for aim in AIMS:
        ended = [each for _, each in sorted(records.get((aim.preset, ()), {}).items()) if "error" not in each]
        seeds, returns, env_steps, _ = _shared_cells(ended, ended)
        verdict = "not run"
        if ended:
            is_reached = statistics.fmean(each["return"] for each in ended) >= aim.mean_return
            verdict = "yes" if is_reached and all(each["env_steps"] <= aim.env_steps for each in ended) else "no"
        what = f"{aim.mean_return:g} in {aim.env_steps:,}"
        yield f"| `{aim.preset}` | {what} | {aim.source} | {seeds} | {returns} | {env_steps} | {verdict} |"


def timed_rows(records: Records) -> Iterable[str]:
    """Yield the rows of the table of aims in seconds."""
    for preset, aim in TIMED.items():
        of_seeds = [each for _, each in sorted(records.get((preset, aim.settings), {}).items())]
        ended = [each for each in of_seeds if "error" not in each]
        reached = sum(each["return"] >= aim.mean_return and each["seconds"] <= aim.limit_s for each in ended)
        verdict = f"{reached} of {len(of_seeds)}" if of_seeds else "not run"
        cells = " | ".join(_shared_cells(of_seeds, ended))
        yield f"| `{preset}` | {aim.mean_return:g} in {aim.limit_s / 60:g} min | {cells} | {verdict} |"


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
    seeds += " only" * (len(records) == 1)
    if not ended:
        return seeds, "", "", ""
    returns = [record["return"] for record in ended]
    spread = f" ({min(returns):.4g} .. {max(returns):.4g})" if len(returns) > 1 else ""
    env_steps, seconds = (statistics.median(record[key] for record in ended) for key in ("env_steps", "seconds"))
    return seeds, f"{statistics.fmean(returns):.4g}{spread}", f"{env_steps:,.0f}", f"{seconds:.0f}"


def rows_at_agents() -> list[tuple[str, str, int]]:
    """Return preset, rule and number of agents of each row of the second table."""
    rows = [
        (preset, rule, agents) for preset, (counts, _) in _AT_AGENTS.items() for agents in counts for rule in _RULES
    ]
    return [row for row in rows if row[2] > 1 or row[1] in ("learner", "fifo")]  # with one agent, all rules are equal


def settings_at_agents(preset: str, rule: str, agents: int) -> tuple[str, ...]:
    share = (f"learner.num_gradients={agents}",) if rule == "avg" else ()
    if (
        rule == "learner" and agents > 1 and preset.endswith("a3c")
    ):  # for A3C, this rule is A2C: one update from all agents' parts
        share = (f"learner.batch_size={load_config(preset).env.num_envs * agents}",)
    return (f"agent.count={agents}", *_RULES[rule], *share, *_AT_AGENTS[preset][1])
