from __future__ import annotations

import json
import logging
import re
import warnings
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from surreal.base.errors import ConfigError
from surreal.base.system.logs import NOISY_LOGGERS, level_number, setup_logging


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.NOTSET)
    logging.captureWarnings(False)


def test_a_record_is_one_line_on_stderr_with_the_process_name(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("INFO", "agent-0")
    logging.getLogger("a.user.module").info("two\nlines of %s", "text")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} INFO agent-0 two lines of text\n", captured.err)


def test_setting_up_again_replaces_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("INFO", "first")
    setup_logging("info", "second")
    logging.getLogger("x").info("hello")
    logging.getLogger("x").debug("hidden")
    assert [line.split(" ", 2)[2] for line in capsys.readouterr().err.splitlines()] == ["second hello"]


def test_an_exception_is_named_in_the_line_and_shown_in_full_only_at_debug(capsys: pytest.CaptureFixture[str]) -> None:
    for level, is_traced in [("INFO", False), ("DEBUG", True)]:
        setup_logging(level, "learner")
        try:
            raise ValueError("a\nb")
        except ValueError:
            logging.getLogger("x").exception("failed")
        text = capsys.readouterr().err
        assert ("Traceback" in text) is is_traced
        if not is_traced:
            assert text.endswith("ERROR learner failed (ValueError: a b)\n")


def test_with_the_variable_a_record_is_an_object(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SURREAL_LOG_FORMAT", "json")
    setup_logging("INFO", "learner")
    logging.getLogger("surreal.x").warning('two\nlines of "%s"', "größe")
    try:
        raise ValueError("a\nb")
    except ValueError:
        logging.getLogger("x").exception("failed")
    plain, failed = map(json.loads, capsys.readouterr().err.splitlines())
    assert datetime.fromisoformat(plain.pop("time")).utcoffset() == timedelta(0)
    assert plain == {
        "level": "WARNING", "process": "learner", "logger": "surreal.x", "message": 'two\nlines of "größe"',
    }  # fmt: skip
    assert failed["error"] == "ValueError: a\nb"
    assert failed["traceback"].startswith("Traceback")
    monkeypatch.setenv("SURREAL_LOG_FORMAT", "xml")
    with pytest.raises(ConfigError, match=r"\$SURREAL_LOG_FORMAT is 'xml'; it must be text or json"):
        setup_logging()


def test_noisy_libraries_stay_quiet_at_debug(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("DEBUG")
    logging.getLogger("asyncio").debug("selector")
    logging.getLogger("websockets.server").info("connection open")
    logging.getLogger("mine").debug("wanted")
    text = capsys.readouterr().err
    assert "wanted" in text
    assert "selector" not in text
    assert "connection open" not in text


def test_warnings_become_log_lines(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("INFO", "eval")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        # `captureWarnings` replaced it, and pytest's recorder replaced that.
        warnings.showwarning = logging._showwarning  # type: ignore[attr-defined]
        warnings.warn("beware", UserWarning, stacklevel=1)
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    assert "WARNING eval" in text
    assert "beware" in text


@pytest.mark.parametrize("level", ["LOUD", "", "getLogger"])
def test_an_unknown_level_is_refused(level: str) -> None:
    with pytest.raises(ValueError, match="must be one of DEBUG, INFO"):
        level_number(level)


def test_numbers_are_levels() -> None:
    assert level_number(15) == 15
    assert level_number("warning") == logging.WARNING
