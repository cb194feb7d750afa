"""Compare scaling by what learning needs with scaling by CPU time, on a model of recorded runs.

    python -m benchmarks.autoscaling [--seeds N]   every claim of docs/autoscaling.md
    python -m benchmarks.autoscaling --record      record real runs again into autoscale/recording.json: four minutes

The rules come from the ScaledObjects of k8s/overlays/autoscale, and a model of Kubernetes' autoscaler applies them. The
simulated run takes seventy minutes. Its learner gets faster and slower, half of its agents die, and Prometheus is away
for two minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.alone import alone
from benchmarks.autoscale.fleet import Dynamics
from benchmarks.autoscale.record import record
from benchmarks.autoscale.rule import Rule
from benchmarks.autoscale.scenarios import PHASE_S, OnCpu, Phase, follow_learner, follow_sessions, starved
from benchmarks.autoscale.sessions import Serving


def say(name: str, runs: Sequence[Sequence[Phase]], **more: object) -> None:
    """Print one JSON object: the worst of all phases of all runs, and medians over the runs."""
    phases = [phase for run in runs for phase in run]
    line = {
        "name": name,
        "settled_s": round(max(phase.settled_s for phase in phases)),
        "settled_median_s": round(statistics.median(phase.settled_s for phase in phases)),
        "turns": statistics.median(sum(phase.turns for phase in run) for run in runs),
        "pods": [phase.pods for phase in runs[0]],
        "pod_hours": round(statistics.median(_pod_s(run) / 3600 for run in runs), 2),
        "runs": len(runs),
        **more,
    }
    sys.stdout.write(json.dumps(line) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--record", action="store_true", help="only record real runs")
    args = parser.parse_args()
    if args.record:
        record()
        return
    recorded, rule = Dynamics.recorded(), Rule.load("scaledobject-agents.yaml")
    computing = replace(recorded, cpu=1.0)
    seeds = range(args.seeds)
    needed = [follow_learner(recorded, rule, seed=seed) for seed in seeds]
    for name, dynamics, scaler in (
        ("by need", recorded, rule),
        ("by CPU, agents that compute", computing, OnCpu()),
        ("by CPU, agents that compute, with our windows", computing, OnCpu(up=rule.up, down=rule.down)),
        ("by CPU, agents that compute, half of what they request", replace(recorded, cpu=0.5), OnCpu()),
        ("by CPU, agents as recorded, which wait for their game", recorded, OnCpu()),
    ):
        runs = [follow_learner(dynamics, scaler, seed=seed) for seed in seeds]
        least = sum(phase.load for phase in runs[0]) * PHASE_S * dynamics.learner_rate / dynamics.agent_rate
        say(
            name,
            runs,
            learner_starved=round(statistics.median(map(starved, runs)), 4),
            pods_of_needed=round(statistics.median(_pod_s(run) / least for run in runs), 3),
            ratio_pods=round(statistics.median(map(_pod_s, runs)) / statistics.median(map(_pod_s, needed)), 3),
        )
    rlx = Rule.load("scaledobject-rlx.yaml")
    for name, serving in (("RLX servers by sessions", Serving()), ("and by latency", Serving(row_s=0.004))):
        runs = [follow_sessions(serving, rlx, seed=seed) for seed in seeds]
        say(name, runs, wait_s=[round(statistics.median(waits), 4) for waits in zip(*map(_waits, runs), strict=True)])


def _pod_s(run: Sequence[Phase]) -> float:
    return sum(phase.pod_s for phase in run)


def _waits(run: Sequence[Phase]) -> list[float]:
    return [phase.waits for phase in run]


if __name__ == "__main__":
    with alone():
        main()
