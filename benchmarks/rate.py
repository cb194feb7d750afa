"""A loop that keeps time, `env.rate_hz`, while a learner uses all cores of this machine.

    python -m benchmarks.rate [--rounds N] [--seconds S] [--rate HZ] [--realtime]

* surreal: `surreal run pendulum-sac` with one agent of one environment. The learner has no limiter, and a thread for
  each core. The numbers are the agent's own metrics, of the whole run: its start counts as well. Aims at 50 Hz: missed
  deadlines < 1 %, latency p99 <= 20 ms.
* realtime: the same with `env.realtime`, which the system has to permit.
* alone: the same loop without Surreal: the environment, a network of the same size in torch, and absolute deadlines. A
  program that trains such a network takes the learner's place.

Rounds alternate. `load` is the number of other processes that wanted a core before the first round (the load average of
the last minute): at more than the machine has cores, the machine was busy, and the numbers are too high.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ALONE = """
import json, sys, time
import gymnasium, numpy as np, torch
from surreal.base.system.deadlines import Deadlines
torch.set_num_threads(1)
def network(inputs, outputs):
    hidden = [torch.nn.Linear(inputs, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU()]
    return torch.nn.Sequential(*hidden, torch.nn.Linear(256, outputs))
if sys.argv[1] == "learn":
    model = network(4, 1)
    optimizer = torch.optim.Adam(model.parameters())
    while True:
        model(torch.randn(256, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
env = gymnasium.make("Pendulum-v1")
obs, _ = env.reset(seed=0)
policy, deadlines, action = network(3, 1), Deadlines(float(sys.argv[2])), np.zeros(1, np.float32)
end_s = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end_s:
    time.sleep(max(0.0, deadlines.left_s()))
    obs, _, _, is_over, _ = env.step(action)
    began_s = time.monotonic()
    if is_over:
        obs, _ = env.reset()
    with torch.inference_mode():
        action = policy(torch.as_tensor(obs)[None]).tanh()[0].numpy()
    deadlines.add_latency(time.monotonic() - began_s)
    deadlines.advance()
print(json.dumps(deadlines.metrics("agent")))
"""


def measure_realtime(seconds: float, rate_hz: float) -> dict[str, float]:
    return measure_surreal(seconds, rate_hz, is_realtime=True)


def measure_surreal(seconds: float, rate_hz: float, *, is_realtime: bool = False) -> dict[str, float]:
    """Train for some seconds, and return the agent's last metrics."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "env.rate_hz": rate_hz,
            "env.num_envs": 1,
            "env.safe_action": 0,
            "env.realtime": str(is_realtime).lower(),
            "agent.count": 1,
            "learner.threads": "all",
            "eval.enabled": "false",
            "run.max_time_s": seconds + 15,
            "run.stop_at_return": "null",
            "replay.samples_per_insert": "null",
            "replay.start_size": 300,
        }
        sets = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "surreal", "run", "pendulum-sac", "--run-dir", f"{folder}/run", *sets]
        subprocess.run([*command, "--quiet"], check=True, stdout=subprocess.DEVNULL)
        found: dict[str, float] = {}
        for line in (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines():
            metrics = json.loads(line).get("metrics", {}).items()
            found |= {name: value for name, value in metrics if name in (*NAMES, UPDATES)}
    return found


def measure_alone(seconds: float, rate_hz: float) -> dict[str, float]:
    """Run the loop next to the program in the learner's place."""
    learner = subprocess.Popen([sys.executable, "-c", ALONE, "learn"])
    try:
        command = [sys.executable, "-c", ALONE, str(seconds), str(rate_hz)]
        return dict(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
    finally:
        learner.kill()
        learner.wait()


UPDATES = "learner/updates_per_s"
NAMES = ("agent/deadlines_total", "agent/missed_deadlines_total", "agent/latency_p50_ms", "agent/latency_p99_ms")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--realtime", action="store_true")
    args = parser.parse_args()
    load = os.getloadavg()[0]
    sides: dict[str, Callable[[float, float], dict[str, float]]] = {"surreal": measure_surreal}
    sides |= {"realtime": measure_realtime} if args.realtime else {}
    sides["alone"] = measure_alone
    rounds = [{side: measure(args.seconds, args.rate) for side, measure in sides.items()} for _ in range(args.rounds)]
    line: dict[str, object] = {"name": f"rate, {args.rate:g} Hz", "rounds": args.rounds}
    for side in sides:
        found = [each[side] for each in rounds]
        missed = sum(each[NAMES[1]] for each in found) / sum(each[NAMES[0]] for each in found)
        shown: dict[str, object] = {"missed_ratio": round(missed, 5)}
        for name in (*NAMES[2:], *([UPDATES] if UPDATES in found[0] else [])):
            shown[name.removeprefix("agent/")] = round(statistics.median(each[name] for each in found), 2)
        shown["missed_and_p99_ms"] = [[round(each[NAMES[1]] / each[NAMES[0]], 5), each[NAMES[3]]] for each in found]
        line[side] = shown
    line |= {
        "aim": {"missed_ratio": 0.01, "latency_p99_ms": 20.0},
        "load": load,
        "is_busy": load > (os.cpu_count() or 1),
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
