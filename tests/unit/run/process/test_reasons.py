"""Exit codes and states of a run's ends."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from surreal.base.errors import BusyError, ConfigError, FolderError, LeaseError, RankError, ThreadFailedError
from surreal.run.process.ending import Ending, ExitCode, exit_code_of

PAGE = Path(__file__).parents[4] / "docs" / "endings.md"


def in_thread(cause: Exception) -> ThreadFailedError:
    error = ThreadFailedError("the listener failed")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("a wrong setting"), 2),
        (BusyError("somebody writes there"), 3),
        (FolderError("the disk is full"), 1),
        (LeaseError("another learner took over"), 1),
        (RankError("rank 1 failed"), 1),
        (RankError("rank 1 was killed", is_killed=True), 4),
        (RuntimeError("anything else"), 1),
        (MemoryError(), 7),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), 7),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 65536 bytes"), 7),
        (in_thread(MemoryError()), 7),
        (in_thread(ConfigError("a wrong setting")), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_error_has_an_exit_code(error: BaseException, code: int) -> None:
    assert exit_code_of(error) == code


@pytest.mark.parametrize("code", list(ExitCode))
def test_every_exit_code_is_documented_with_its_status(code: ExitCode) -> None:
    rows = [row.split("|") for row in PAGE.read_text().splitlines() if row.startswith("| ") and "`" in row]
    of_code = [row for row in rows if re.fullmatch(rf" {code} ", row[-2])]
    if code in (ExitCode.USAGE, ExitCode.BUSY):
        of_code = [row for row in PAGE.read_text().splitlines() if row.endswith(f"nothing is written | | {code} |")]
        assert of_code
    elif code is ExitCode.BROKEN:
        assert f"the exit code of chaos is {code:d} if an invariant was broken" in PAGE.read_text()
    else:
        assert {row[-3].strip(" `") for row in of_code} == {Ending("", code).status}
