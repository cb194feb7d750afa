"""`Check`: one question with a time limit. `run_check` asks it here, on a thread; `apart` asks in another process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from surreal.base.liveness.health import innermost_call, stack_of
from surreal.plugins.doctor.frame.faults import FAILED, HANGS
from surreal.plugins.doctor.frame.finding import Finding
from surreal.run.process.ending import error_line


class Check(NamedTuple):
    """A question, such as whether Redis answers.

    Check("latency", partial(latency, client))
    """

    title: str  #: what is looked at, for messages: "<title> did not end"
    find: Callable[[], Iterable[Finding]]
    timeout_s: float = 20.0


def run_check(check: Check) -> Iterator[Finding]:
    """Ask a check, and give up waiting at its time limit; an exception is a finding, not a traceback."""
    findings: list[Finding] = []
    thread = threading.Thread(target=lambda: findings.extend(ask(check)), name=f"doctor/{check.title}", daemon=True)
    thread.start()
    thread.join(check.timeout_s)
    yield from tuple(findings)
    if thread.is_alive():
        yield hang(check.title, check.timeout_s, innermost_call(stack_of(thread.ident or 0)))


def ask(check: Check) -> Iterator[Finding]:
    """Ask a check on this thread."""
    try:
        yield from check.find()
    except Exception as error:
        yield FAILED.found(f"{check.title}: {error_line(error)}")


def hang(title: str, timeout_s: float, place: str) -> Finding:
    """The finding of a check that did not end.

    Args:
        title: of the check.
        timeout_s: that it had.
        place: the call it is in.
    """
    return HANGS.found(f"{title} did not end within {timeout_s:.0f} s: it hangs in {place}")
