"""Checks of users' code (environments, models) in a separate process, because it may hang, crash, or call `exit`.

    python -m surreal.plugins.doctor.apart PIPE environment|model [--quick] [--maxmemory BYTES] SOURCE [OVERRIDE...]

The parent reads findings, one line of JSON each, from a pipe; the output of the checks goes to a file. The child runs
them on its main thread, as in a run. If a check exceeds its time, `faulthandler`, which works even if the interpreter
hangs, writes its stack to that file, and the child ends.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from traceback import FrameSummary
from typing import IO, Annotated, Any, Literal

import typer

from surreal.base.system.command_line import read_command_line
from surreal.base.system.health import innermost_call
from surreal.config import add_python_path, load_config
from surreal.plugins.doctor.finding import Check, Finding, ask, fault, hang
from surreal.run.process.interrupts import child_environment, follow_parent

#: Time beyond the limit of a check after which the child is killed, s.
_GRACE_S = 5.0
#: Time limit for the child's imports, until the first check begins, s.
START_TIMEOUT_S = 120.0
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_DUMP = "Timeout ("


def run_apart(module: str, arguments: Sequence[str]) -> Iterator[Finding]:
    """Run the checks of a module's `main(argv)`, and yield their findings.

    It calls `report` with the checks; its first argument is the pipe's descriptor.
    """
    reading, writing = os.pipe()
    with tempfile.TemporaryDirectory(prefix="surreal-doctor-") as folder, os.fdopen(reading, "rb") as pipe:
        console = Path(folder) / "console"
        with console.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", module, str(writing), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                pass_fds=(writing,),
                # Torch's optimizers make a compiler cache, which would stay in /tmp forever.
                env=child_environment({"TORCHINDUCTOR_CACHE_DIR": folder}),
                start_new_session=True,
            )
        os.close(writing)
        try:
            yield from _follow(process, pipe, console)
        finally:
            with suppress(ProcessLookupError):  # the workers of an environment as well
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def report(descriptor: int, checks: Iterator[Check]) -> None:
    """In the child: run the checks one after the other, and write their findings to the pipe."""
    with os.fdopen(descriptor, "w", encoding="utf-8") as pipe:

        def write(**content: Any) -> None:
            pipe.write(json.dumps(content) + "\n")
            pipe.flush()

        for check in checks:
            write(begins=check.title, timeout_s=check.timeout_s)
            faulthandler.dump_traceback_later(check.timeout_s, exit=True)
            for finding in ask(check):
                write(finding=finding.to_json())
            faulthandler.cancel_dump_traceback_later()
        write(is_done=True)


def _follow(process: subprocess.Popen[bytes], pipe: IO[bytes], console: Path) -> Iterator[Finding]:
    """Read a child's reports until it is done, closes the pipe, or exceeds the time of a check."""
    title, timeout_s, rest = "the start of its process", START_TIMEOUT_S, b""
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while is_in_time := bool(select.select([pipe], [], [], max(0.0, deadline_s - time.monotonic()))[0]):
        data = os.read(pipe.fileno(), 1 << 16)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for content in map(json.loads, lines):
            if "is_done" in content:
                return
            if "finding" in content:
                yield Finding.from_json(content["finding"])
            else:
                title, timeout_s = content["begins"], content["timeout_s"]
                deadline_s = time.monotonic() + timeout_s + _GRACE_S
    text = console.read_text(errors="replace")
    if not is_in_time or _DUMP in text:
        yield hang(title, timeout_s, _place_in(text))
    else:
        yield fault("check-died", f"{title}: {_end_of(process.wait(), text)}")
    yield fault("check-not-done", "the checks after it were not made")


def _place_in(console: str) -> str:
    """Return the innermost call of the main thread in a dump of faulthandler, which has that thread last."""
    found = [_FRAME.fullmatch(line) for line in console.rpartition("(most recent call first):")[2].splitlines()]
    stack = [FrameSummary(match[1], int(match[2]), match[3]) for match in found if match]
    return innermost_call(stack[::-1])


def _end_of(code: int, console: str) -> str:
    last = next((line for line in reversed(console.splitlines()) if line.strip()), "")
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"its process {how}" + (f": {last.strip()[:200]}" if last else "")


@dataclass(frozen=True)
class _Arguments:
    pipe: Annotated[int, typer.Argument()]
    section: Annotated[Literal["environment", "model"], typer.Argument()]
    source: Annotated[str, typer.Argument()]
    overrides: Annotated[tuple[str, ...], typer.Argument()] = ()
    quick: Annotated[bool, typer.Option("--quick")] = False
    maxmemory: Annotated[int | None, typer.Option()] = None


def main(argv: Sequence[str]) -> int:
    """Run the checks, and return the exit code."""
    follow_parent()
    arguments = read_command_line(_Arguments, argv, name=__name__)
    config = load_config(arguments.source, arguments.overrides)
    add_python_path(config.python_path)
    if arguments.section == "environment":  # torch is not needed
        from surreal.plugins.doctor import environment
        from surreal.run.build.environments import build_env

        times = environment.QUICK if arguments.quick else environment.LONG
        report(arguments.pipe, environment.examine_environment(partial(build_env, config, training=True), times))
    else:
        from surreal.plugins.doctor import model

        limits = model.QUICK if arguments.quick else model.LONG
        report(arguments.pipe, model.examine_model(config, limits, arguments.maxmemory))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
