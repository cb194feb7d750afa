"""A run that has ended, described from its folder: what `surreal status` and `surreal top` show of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surreal.run.process.run_folder import newest_checkpoint
from surreal.run.view.listing import last_round, read_run
from surreal.run.view.outcome import FILES


def describe_ended(folder: Path) -> list[tuple[str, str]]:
    """Give names and values to show, in order.

    Args:
        folder: of the run; it may lack any of its files.
    """
    run, last = read_run(folder), last_round(folder) or {}
    returns = {"best return": run.best_return, "last return": last.get("mean_return")}
    updates = newest_checkpoint(folder)
    return [
        ("ended", f"{run.status}{f': {run.reason}' if run.reason else ''}"),
        ("time", f"{run.time_s:.0f} s"),
        ("env steps", f"{run.env_steps:,}"),
        ("updates", f"{run.updates:,}"),
        *((name, f"{value:.1f}") for name, value in returns.items() if isinstance(value, int | float)),
        ("checkpoint", f"after {updates:,} updates" if updates else "none"),
        ("folder", f"{folder}: {', '.join(name for name in FILES if (folder / name).exists())}"),
    ]


def ended_to_json(folder: Path) -> dict[str, Any]:
    """Give plain data, with the names of a run in progress where they mean the same."""
    run = read_run(folder)
    plain = run.to_json() | {"title": run.name, "state": "over", "stop_reason": run.reason or None, "processes": []}
    return {name: plain[name] for name in plain if name not in ("is_in_redis", "name", "reason")}
