"""Checks themselves: their time limits, their errors, and the process that environments and models are tried in."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from surreal.plugins.doctor.apart import run_apart
from surreal.plugins.doctor.finding import (
    FAULTS,
    Check,
    Finding,
    Severity,
    fault,
    ok,
    print_finding,
    print_section,
    run_check,
    summary,
    worst,
)


def test_a_check_that_raises_is_a_finding_with_the_place() -> None:
    def find() -> Iterator[Finding]:
        yield ok("this went well")
        raise KeyError("nobody")

    first, second = run_check(Check("the pipes", find))
    assert first.text == "this went well"
    assert second.fault == "check-failed" and second.severity is Severity.ERROR
    assert "the pipes: KeyError: 'nobody' (test_frame.py line" in second.text


def test_a_check_that_hangs_is_given_up_and_named_with_its_call() -> None:
    release = threading.Event()

    def hang_here() -> Iterator[Finding]:
        yield ok("before")
        release.wait()

    try:
        first, second = run_check(Check("the pump", hang_here, 0.2))
    finally:
        release.set()
    assert first.text == "before"
    assert second.fault == "check-hangs" and "it hangs in hang_here (test_frame.py line" in second.text


CHILD = """
import sys
from surreal.plugins.doctor.apart import report
from surreal.plugins.doctor.finding import Check
from surreal.plugins.doctor.finding import ok

def good():
    print("noise of an environment", flush=True)
    yield ok("good")

def bad():
{body}

report(int(sys.argv[1]), iter([Check("the first", good), Check("the second", bad, {timeout_s}), Check("third", good)]))
"""


@pytest.fixture
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    here = os.getcwd()

    def run(body: str, timeout_s: float = 60.0) -> list[Finding]:
        indented = "\n".join(f"    {line}" for line in body.splitlines())
        (tmp_path / "trying_things.py").write_text(CHILD.format(body=indented, timeout_s=timeout_s))
        monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{here}")
        return list(run_apart("trying_things", []))

    yield run


def test_what_a_process_apart_finds_arrives_in_order(apart: object) -> None:
    findings = apart("yield ok('as well')")  # type: ignore[operator]
    assert [finding.text for finding in findings] == ["good", "as well", "good"]


@pytest.mark.parametrize(
    ("body", "timeout_s", "fault", "text"),
    [
        (
            "import time\ntime.sleep(1000)\nyield",
            0.3,
            "check-hangs",
            "the second did not end within 0 s: it hangs in bad (trying_",
        ),
        ("import sys\nsys.exit(3)\nyield", 60.0, "check-died", "the second: its process ended with exit code 3"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\nyield", 60.0, "check-died", "killed by SIGSEGV"),
    ],
    ids=["hangs", "exits", "crashes"],
)
def test_what_ends_a_process_apart_is_a_finding(
    apart: object, body: str, timeout_s: float, fault: str, text: str
) -> None:
    findings = apart(body, timeout_s)  # type: ignore[operator]
    assert [finding.fault for finding in findings] == ["", fault, "check-not-done"]
    assert text in findings[1].text


def test_findings_survive_json_and_the_worst_of_them_counts() -> None:
    findings = [ok("fine"), fault("env-leaks", "it drips", "a cloth").in_section("model")]
    assert [Finding.from_json(json.loads(json.dumps(each.to_json()))) for each in findings] == findings
    assert worst(findings) is Severity.WARNING and worst([]) is Severity.OK
    assert fault("env-leaks", "it drips").remedy == FAULTS["env-leaks"].remedy


def test_a_report_is_readable_in_80_columns_without_colour() -> None:
    console = Console(width=80, file=(shown := io.StringIO()))
    findings = [
        ok("all is well"),
        fault("env-leaks", f"it drips {'and drips ' * 20}here", "surreal doctor --only [model]"),
    ]
    print_section("model", console)
    for finding in findings:
        print_finding(finding, console)
    lines = shown.getvalue().splitlines()
    assert lines[0] == "model" and lines[1] == "  ok       all is well"
    assert lines[2].startswith("  warning  it drips and") and lines[3].startswith("           and drips")
    assert lines[-1] == "           -> surreal doctor --only [model]"
    assert max(map(len, lines)) <= 80
    assert summary(findings) == "0 errors, 1 warning, 0 hints; 1 checks are ok"
