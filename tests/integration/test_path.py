"""How much code one transition passes through, counted by `benchmarks.path`."""

from __future__ import annotations

from benchmarks.path import SECTIONS, Trace, trace_transition
from surreal import RedisClient
from tests.servers import RedisProcess

#: The most that the path may have. Lower these bounds with every change that shortens it.
MAX_FILES, MAX_FUNCTIONS, MAX_REPLAY_FILES = 42, 260, 9


#: What threads do beside the transition may be recorded with it, so the shortest of some traces counts.
TRACES = 3


def test_a_transition_passes_through_no_more_code_than_before(redis_server: RedisProcess, run_id: str) -> None:
    for attempt in range(1, TRACES + 1):
        with RedisClient(redis_server.address, run=f"{run_id}-{attempt}") as client:
            trace = trace_transition(client)
            client.delete_run()
        for section in SECTIONS:
            assert trace.of(section).functions, f"nothing was recorded for {section}; has its thread another name now?"
        if len(trace.files) <= MAX_FILES and len(_names(trace)) <= MAX_FUNCTIONS:
            break
    _check("files of surreal/", trace.files, MAX_FILES)
    _check("functions of surreal/", _names(trace), MAX_FUNCTIONS)
    _check("files in the replay's turn", trace.of("replay's turn").files, MAX_REPLAY_FILES)


def _names(trace: Trace) -> list[str]:
    return list(dict.fromkeys(f"{function.file}: {function.name}" for function in trace.functions))


def _check(what: str, found: list[str], most: int) -> None:
    listed = "\n".join(found)
    assert len(found) <= most, f"{len(found)} {what} instead of {most} (python -m benchmarks.path --list):\n{listed}"
