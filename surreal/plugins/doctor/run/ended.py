"""A run that has ended: how, what it reached, and what its files report that went wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from surreal.config import Config
from surreal.plugins.doctor.frame.finding import Finding, ok
from surreal.plugins.doctor.run.faults import COLLAPSED, FAILED, KILLED, LOGGED, SKIPPED, UNREACHED, UNTRAINED
from surreal.run.build.kept import round_lines
from surreal.run.process.run_folder import RESULT_NAME, last_metric, read_result, tail
from surreal.run.session.scoring.best import is_finite, read_best

#: Share of what was gained over the first round that the last one has lost, from which on a policy has collapsed.
_COLLAPSE = 0.5


def ending(folder: Path) -> Iterator[Finding]:
    """Report how the run ended, and whether it learned."""
    try:
        result = read_result(folder)
        status, reason, updates = result["status"], result["reason"], int(result["updates"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        yield KILLED.found(f"{folder / RESULT_NAME} does not say how the run ended: {error}")
        return
    if status == "running":
        yield KILLED.found(f"{folder} has no ending: the launcher was killed")
    elif status == "failed":
        yield FAILED.found(f"the run failed: {reason}")
    else:
        yield ok(f"the run {'was interrupted' if status == 'interrupted' else 'has finished'}: {reason}")
        if not updates:
            yield UNTRAINED.found(
                f"the run ended before its first update, after {result.get('env_steps', 0)} env steps"
            )


def scores(folder: Path, config: Config) -> Iterator[Finding]:
    """Compare the first, the best and the last round of the evaluation with each other and with the goal."""
    rounds = [line["mean_return"] for line in round_lines(folder / "eval" / "scores.jsonl", warns=False)
              if is_finite(line.get("mean_return"))]  # fmt: skip
    best = (read_best(folder / "eval") or {}).get("mean_return")
    if not rounds or best is None:
        yield ok("no round of evaluation was played")
        return
    goal, last = config.run.stop_at_return, rounds[-1]
    if goal is not None and best < goal:
        yield UNREACHED.found(f"the best return is {best:.1f}; run.stop_at_return is {goal:g}")
    if best > rounds[0] and best - last > _COLLAPSE * (best - rounds[0]):
        yield COLLAPSED.found(f"the last return is {last:.1f}, the best was {best:.1f}, the first {rounds[0]:.1f}")
    else:
        yield ok(f"returns were {rounds[0]:.1f} first, {best:.1f} at best and {last:.1f} last")


def logs(folder: Path) -> Iterator[Finding]:
    """Pass on the newest error in each process's log, and skipped updates."""
    is_clean = True
    for path in sorted((folder / "logs").glob("*.log")):
        errors = [line for line in tail(path) if " ERROR " in line or " CRITICAL " in line]
        if errors:
            is_clean = False
            yield LOGGED.found(f"{path.stem}: {' '.join(errors[-1].split())[:300]}")
    if skipped := last_metric(folder, "learner/skipped_updates_total"):
        is_clean = False
        yield SKIPPED.found(f"{skipped:,.0f} updates were skipped")
    if is_clean:
        yield ok("no process logged an error, and no update was skipped")
