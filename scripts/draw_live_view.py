"""Draw the live view of a made-up run at 80 and 160 columns for docs/live-view.md: `make images`.

python scripts/draw_live_view.py [FOLDER]
"""

import io
import re
import sys
from pathlib import Path

import numpy as np
from rich.console import Console

from surreal.base.metrics import Reading
from surreal.distributed.telemetry.heartbeats import Heartbeat
from surreal.run.view.live.frame import Frame, Picture
from surreal.run.view.live.trend import Bound
from surreal.run.view.run_view import summarize_processes

LAST_UPDATE = {"learner/loss": 0.0213, "learner/q_mean": 41.7}
RUN = "cartpole-dqn-20260131-123456-ab12"


def beat(role, name, pid, version, *, host="gpu-box", **more):
    """Build the heartbeat of a process."""
    return Heartbeat(f"{name}-{pid}", role, name, pid, host, 0.0, 754.0, version=version, **more)


def small_run():
    """Two agents, one of which was started again."""
    learner = {
        "learner/updates_total": 10_234.0,
        "learner/updates_per_s": 312.0,
        "learner/policy_lag_versions": 3.0,
        "replay/fill_ratio": 0.48,
        "replay/samples_per_insert": 31.2,
        "replay/limiter_position_ratio": 0.62,
    }
    evaluation = {
        "eval/episode_return": 398.0,
        "eval/episode_return_best": 412.5,
        "eval/rounds_total": 58.0,
        "eval/played_episodes_count": 7.0,
        "eval/round_episodes_count": 20.0,
    }
    agent = {"agent/env_steps_per_s": 617.0, "agent/episode_return_recent": 282.3}
    warning = {"warning": "agent-1 was killed by SIGKILL; starting it again", "warned": 712.0}
    return [
        beat("launcher", "launcher", 4700, 0, **warning),
        beat("learner", "learner", 4711, 2469, metrics=learner, reading=Reading(753.0, 42_000, LAST_UPDATE)),
        beat("eval", "eval", 4720, 2467, metrics=evaluation),
        beat("agent", "agent-0", 4712, 2469, metrics=agent, global_step=42_016),
        beat("agent", "agent-1", 4713, 2301, age_s=40.0),
        beat("agent", "agent-1", 4790, 2468, metrics=agent, waits_for=("waiting to send experience: no credit",)),
    ]


def large_run():
    """40 agents on four machines, of which one hangs and one is gone."""
    agent = {"agent/env_steps_per_s": 617.0, "agent/episode_return_recent": 282.3}
    agents = [
        beat("agent", f"agent-{index}", 900 + index, 2468, host=f"node-{index % 4}", metrics=agent)
        for index in range(2, 38)
    ]
    hanging = beat(
        "agent", "agent-38", 938, 2440, host="node-2", metrics=agent,
        hangs_in="the agent loop hangs in MyEnv.step (my_env.py line 71)",
    )  # fmt: skip
    return [*small_run(), *agents, hanging, beat("agent", "agent-39", 939, 2431, host="node-3", age_s=75.0)]


def view_of(beats, footer):
    """Twelve minutes of learning, and how its processes are now."""
    rng = np.random.default_rng(0)
    steps = np.linspace(0.0, 1.0, 300)
    returns = 20 + 262 / (1 + np.exp(-9 * (steps - 0.55))) + rng.normal(0, 6, steps.size)
    rounds = 9 + 390 / (1 + np.exp(-9 * (steps[::5] - 0.45))) + rng.normal(0, 14, steps[::5].size)
    return Picture(
        RUN,
        elapsed_s=754.0,
        view=summarize_processes(beats),
        bound=Bound("env steps", 42_016, 100_000, 201.0),
        goal=475.0,
        returns=returns.clip(9).tolist(),
        eval_returns=rounds.clip(9).tolist(),
        restarts={"agent-1": 1},
        footer=footer,
    )


def draw(view, width, title):
    """A terminal with this in it, as SVG."""
    console = Console(file=io.StringIO(), record=True, force_terminal=True, width=width)
    console.print(Frame(view, rows=20))
    svg = console.export_svg(title=title, unique_id="live-view")
    # The viewer's own fonts: a page of documentation fetches none from elsewhere.
    return re.sub(r" *@font-face \{.*?\}\n", "", svg, flags=re.DOTALL)


def main():
    """Write both pictures."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "images")
    keys = "q leaves this view, s asks the run to stop"
    pictures = {
        "live-view-80.svg": draw(view_of(small_run(), ""), 80, "surreal run cartpole-dqn"),
        "live-view-160.svg": draw(view_of(large_run(), keys), 160, "surreal top --redis replay-host:6379"),
    }
    for name, svg in pictures.items():
        (folder / name).write_text(svg, encoding="utf-8")
        print(folder / name)


if __name__ == "__main__":
    main()
