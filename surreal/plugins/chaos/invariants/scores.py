"""`judge_scores`: evaluation goes on; its rounds are numbered without gaps, whoever is killed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from surreal.plugins.chaos.invariants.verdict import Verdict


def judge_scores(rounds: Sequence[Mapping[str, Any]], *, before: int, last_at: int, may_go_back: bool) -> Verdict:
    """Judge the rounds of an evaluation.

    Args:
        rounds: lines of `scores.jsonl`, in the order of the file.
        before: how many of them there were when the first disturbance came.
        last_at: how many when the last one was over.
        may_go_back: whether Redis was emptied, after which versions may begin lower.
    """
    violations = []
    numbers = [int(line["round"]) for line in rounds]
    if numbers != list(range(numbers[0] if numbers else 0, (numbers[0] if numbers else 0) + len(numbers))):
        violations.append(f"rounds are numbered {_shorten(numbers)}, not one after the other")
    versions = [int(line["version"]) for line in rounds]
    if versions != sorted(versions) and not may_go_back:
        place = next(i for i in range(1, len(versions)) if versions[i] < versions[i - 1])
        violations.append(
            f"round {numbers[place]} played version {versions[place]} after version {versions[place - 1]}"
        )
    if len(rounds) <= last_at:
        violations.append("no round was played after the last disturbance")
    returns = [_return(line) for line in rounds]
    return Verdict("evaluation goes on", _evidence(returns, before, last_at), tuple(violations))


def _evidence(returns: Sequence[float], before: int, last_at: int) -> str:
    text = f"{len(returns)} rounds, {len(returns) - last_at} of them after the last disturbance"
    known = [value for value in returns if math.isfinite(value)]
    if not known:
        return text
    first = [value for value in returns[:before] if math.isfinite(value)][-1:] or known[:1]
    return f"{text}; mean return {first[0]:.1f} before the first, at best {max(known):.1f}, {known[-1]:.1f} at the end"


def _return(line: Mapping[str, Any]) -> float:
    value = line.get("mean_return")
    return float(value) if isinstance(value, int | float) else math.nan


def _shorten(numbers: Sequence[int]) -> str:
    text = ", ".join(map(str, numbers))
    return text if len(text) < 120 else f"{text[:60]} ... {text[-50:]}"
