"""What an error looks like at the command line."""

from __future__ import annotations

import pytest

from surreal.base.errors import ConfigError, ThreadFailedError
from surreal.run.process.ending import error_line, is_expected, print_error


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def test_our_own_errors_are_their_message() -> None:
    assert error_line(ConfigError("learner.batch_size is 0\n  it must be >= 1")) == (
        "learner.batch_size is 0 it must be >= 1"
    )
    assert is_expected(ConfigError("x"))


def test_failed_thread_shows_what_killed_it() -> None:
    error = caused(ThreadFailedError("thread replay/replay failed: no"), ConfigError("the reason"))
    assert error_line(error) == "the reason"
    assert is_expected(error)


def test_other_errors_say_type_and_place(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        list(range(1))[1]
    except IndexError as caught:
        error = caught
    assert error_line(error).startswith("IndexError: list index out of range (test_reports.py line ")
    assert not is_expected(error)
    print_error(error)
    assert capsys.readouterr().err.count("\n") == 1
