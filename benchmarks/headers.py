"""The end of each preset's header: its results and its reference, written from the records by `make learn`.

    # Result: -84.5, -81.7 and -82.4 (seeds 0, 1 and 2; 1000 fresh episodes) after 330,016 to 500,096 env steps.
    # Reference: -83 after 500,000 env steps (docs/results.md).

The rest of a header is written by hand; a test keeps results of whole runs out of it, and compares these lines with the
records.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.references import REFERENCES, TIMED
from surreal.config import preset_names
from surreal.config.preset_files import preset_path

#: Presets whose games are played in a browser.
PLAYED = ("bandit-rlx", "catch-rlx")
_STARTS = ("# Result: ", "# Reference: ")
_WIDTH = 120
_GOAL = "run.stop_at_return"
#: Preset and settings -> seed -> record, see benchmarks/results.py.
Records = Mapping[tuple[str, tuple[str, ...]], Mapping[int, Mapping[str, Any]]]


def write_headers(records: Records) -> None:
    """Write the results of all presets into their files."""
    for preset in preset_names():
        path = preset_path(preset)
        of_seeds = records_of(preset, records)
        path.write_text(with_results(path.read_text(encoding="utf-8"), preset, of_seeds), encoding="utf-8")


def records_of(preset: str, records: Records) -> list[Mapping[str, Any]]:
    """Return the records of a preset's whole runs, or else those of runs that ended earlier, at an aim in seconds."""
    timed = records.get((preset, TIMED[preset].settings), {}) if preset in TIMED else {}
    return [record for _, record in sorted((records.get((preset, ())) or timed).items())]


def with_results(text: str, preset: str, records: Sequence[Mapping[str, Any]]) -> str:
    """Return the text of a preset's file with these results, one record for each seed, in place of older ones."""
    lines = text.splitlines()
    end = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    first = next((number for number, line in enumerate(lines[:end]) if line.startswith(_STARTS)), end)
    return "\n".join([*lines[:first], *result_lines(preset, records), *lines[end:]]) + "\n"


def result_lines(preset: str, records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write the lines of a preset."""
    if preset in PLAYED:
        return []
    sentences = [f"Result: {_result(preset, [record for record in records if 'error' not in record])}."]
    if (reference := REFERENCES.get(preset)) is not None:
        sentences.append(
            f"Reference: {reference.mean_return:g} after {reference.env_steps:,} env steps (docs/results.md)."
        )
    return [line for each in sentences for line in textwrap.wrap(f"# {each}", _WIDTH, subsequent_indent="#   ")]


def _result(preset: str, ended: Sequence[Mapping[str, Any]]) -> str:
    if not ended:
        return "not run to its end yet"
    returns = _join([f"{record['return']:.4g}" for record in ended])
    seeds = _join([str(record["seed"]) for record in ended])
    episodes = min(record["episodes"] for record in ended)
    steps = [record["env_steps"] for record in ended]
    span = f"{min(steps):,}" if min(steps) == max(steps) else f"{min(steps):,} to {max(steps):,}"
    end = (
        f"from {span} recorded" if "--offline " in preset_path(preset).read_text(encoding="utf-8") else f"after {span}"
    )
    goals = {each.partition("=")[2] for record in ended for each in record.get("settings", ()) if _GOAL in each}
    earlier = f", with {_GOAL} {_join(sorted(goals))}" if goals else ""
    return (
        f"{returns} (seed{'s' if len(ended) > 1 else ''} {seeds}; {episodes} fresh episodes) {end} env steps{earlier}"
    )


def _join(words: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
