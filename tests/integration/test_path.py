"""How much code one transition passes through, counted by `benchmarks.path`."""

from __future__ import annotations

from benchmarks.path import SECTIONS, Trace, trace_transition
from surreal import RedisClient

#: The most that the path may have. Lower these bounds with every change that shortens it.
MAX_FILES, MAX_FUNCTIONS, MAX_REPLAY_FILES = 42, 260, 9


def test_a_transition_passes_through_no_more_code_than_before(client: RedisClient) -> None:
    trace = trace_transition(client)
    for section in SECTIONS:
        assert trace.of(section).functions, f"nothing was recorded for {section}; has its thread another name now?"
    _check("files of surreal/", trace.files, MAX_FILES)
    _check("functions of surreal/", _names(trace), MAX_FUNCTIONS)
    _check("files in the replay's turn", trace.of("replay's turn").files, MAX_REPLAY_FILES)


def _names(trace: Trace) -> list[str]:
    return list(dict.fromkeys(f"{function.file}: {function.name}" for function in trace.functions))


def _check(what: str, found: list[str], most: int) -> None:
    listed = "\n".join(found)
    assert len(found) <= most, f"{len(found)} {what} instead of {most} (python -m benchmarks.path --list):\n{listed}"
