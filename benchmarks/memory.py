"""Memory of the processes of a run of cartpole-ppo, against a Python that imports torch and nothing else.

    python -m benchmarks.memory [--agents 8]

A run with one agent gives the resident set size (RSS) of learner, agent and evaluation after some updates, and their
proportional set size (PSS), which divides memory that processes share. The PSS of a whole run with 100 agents, launcher
and Redis included, is that of a run with some agents and, for each further one, the memory that an agent shares with no
other process. It is compared with 100 Pythons that import torch.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.alone import alone
from surreal.base.errors import SurrealError
from surreal.run.process.finding import find_run
from surreal.run.view.reader import run_status

_UPDATES = 20  #: before memory is measured
#: Processes that live shorter, such as the check of a configuration, do not count, s.
_SETTLED_S = 2.0
_MANY = 100
_DEADLINE_S = 300.0
_BARE = "import torch; print('ready', flush=True); input()"


class Memory(NamedTuple):
    """Memory of one process, MiB."""

    rss: float
    pss: float
    own: float  #: shared with no other process


def memory_of(pid: int) -> Memory:
    """Read the memory of a process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    sizes = {line.partition(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    return Memory(sizes["Rss"], sizes["Pss"], sizes["Private_Clean"] + sizes["Private_Dirty"])


def measure_bare() -> float:
    """Return the RSS of a Python that has imported torch, MiB."""
    command = [sys.executable, "-c", _BARE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        rss = memory_of(process.pid).rss
        process.communicate("\n")
    return rss


def measure_run(agents: int) -> tuple[dict[str, Memory], float]:
    """Return the memory of the processes of a run by name, and the PSS of all of them, MiB."""
    settings = [f"agent.count={agents}", f"learner.batch_size={8 * agents}"]
    settings += ["run.stop_at_return=null", "run.max_env_steps=1000000000"]
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        command = [sys.executable, "-m", "surreal", "run", "cartpole-ppo", "--quiet", "--run-dir", str(run_dir)]
        command += [part for setting in settings for part in ("--set", setting)]
        run = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            names = _wait_for_updates(run, run_dir, agents)
            before = _processes(run.pid)
            time.sleep(_SETTLED_S)
            found = {pid: memory_of(pid) for pid in before & _processes(run.pid)}
        finally:
            run.send_signal(signal.SIGINT)
            run.wait()
    return {name: found[pid] for pid, name in names.items()}, sum(memory.pss for memory in found.values())


def _processes(pid: int) -> set[int]:
    return {pid, *(process.pid for process in psutil.Process(pid).children(recursive=True))}


def _wait_for_updates(run: subprocess.Popen[bytes], run_dir: Path, agents: int) -> dict[int, str]:
    deadline_s = time.monotonic() + _DEADLINE_S
    while time.monotonic() < deadline_s and run.poll() is None:
        time.sleep(0.3)
        try:
            with find_run(None, address=None, run_dir=run_dir) as client:
                status = run_status(client).to_json()
        except SurrealError:
            continue  # it has not begun
        names = {int(process["pid"]): str(process["name"]) for process in status["processes"]}
        if len(names) >= agents + 3 and status["updates"] >= _UPDATES:
            return names
    raise RuntimeError(f"the run did not make {_UPDATES} updates within {_DEADLINE_S:g} s")


def _report(what: str, value: float, baseline: float, unit: str, **more: float) -> None:
    rounded = {name: round(number, 1) for name, number in more.items()}
    line = {"name": f"memory of cartpole-ppo, {what}", "value": round(value, 1), "unit": unit}
    line |= {"baseline": round(baseline, 1), "ratio": round(baseline / value, 3), "rounds": 1, **rounded}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=8, help="agents of the larger run")
    args = parser.parse_args()
    bare = measure_bare()
    processes, _ = measure_run(1)
    for what, name in (("learner", "learner"), ("agent", "agent-0"), ("evaluation", "eval")):
        _report(what, processes[name].rss, bare, "MiB", pss=processes[name].pss)
    processes, total = measure_run(args.agents)
    agent = statistics.fmean(memory.own for name, memory in processes.items() if name.startswith("agent-"))
    _report(f"{_MANY} agents", total + (_MANY - args.agents) * agent, _MANY * bare, "MiB", further_agent=agent)


if __name__ == "__main__":
    with alone():
        main()
