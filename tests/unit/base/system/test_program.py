"""How a small program ends."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from importlib import metadata

import pytest

from surreal.base.errors import ContractError
from surreal.base.system.program import install_command, run_program


@pytest.fixture(autouse=True)
def _keep_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(False)


def end_with(error: BaseException | None) -> None:
    logging.getLogger("surreal").info("begun")
    if error is not None:
        raise error


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [(None, 0, ""), (KeyboardInterrupt(), 130, "interrupted\n"), (ContractError("another model"), 1, "error: another")],
)
def test_each_end_has_its_code_and_at_most_a_line(
    error: BaseException | None, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program("agent", lambda: end_with(error)) == code
    shown = capsys.readouterr().err
    first, _, rest = shown.partition("\n")
    assert first.endswith("INFO agent begun")
    assert rest.startswith(line)
    assert rest.count("\n") == bool(line)


class Destroyed:
    """Is destroyed when Ctrl-C comes."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error

    def __del__(self) -> None:
        raise self.error


@pytest.fixture
def _ctrl_c() -> Iterator[None]:
    """Ctrl-C as in a terminal: a process that a script starts in the background ignores it."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.usefixtures("_ctrl_c")
def test_ctrl_c_inside_of_a_destructor_is_not_lost(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.unraisablehook
    met = []

    def body() -> None:
        for _ in range(2):  # also when it has already been lost once
            try:
                Destroyed(KeyboardInterrupt)
                threading.Event().wait(30)
            except KeyboardInterrupt:
                met.append("interrupted")
        raise KeyboardInterrupt

    assert run_program("agent", body) == 130
    assert met == ["interrupted"] * 2
    assert sys.unraisablehook is before
    assert capsys.readouterr().err == "interrupted\n"


def test_other_mistakes_of_destructors_are_shown_as_always(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[type[BaseException]] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda happened: seen.append(happened.exc_type))

    def body() -> None:
        Destroyed(ZeroDivisionError)

    assert run_program("agent", body) == 0
    assert seen == [ZeroDivisionError]


def test_a_programs_own_mistake_is_shown_in_full() -> None:
    with pytest.raises(ZeroDivisionError):
        run_program("agent", lambda: 1 / 0)


def test_parameters_with_defaults_are_options(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def body(steps: int = 10, rate: float = 0.5, save_as: str = "", is_shown: bool = False) -> None:
        seen.append((steps, rate, save_as, is_shown))

    for line in ([], ["--steps", "3", "--rate", "1", "--save-as", "x", "--is-shown"]):
        monkeypatch.setattr("sys.argv", ["program", *line])
        assert run_program("agent", body) == 0
    assert seen == [(10, 0.5, "", False), (3, 1.0, "x", True)]


def test_a_parameter_without_a_default_is_refused() -> None:
    with pytest.raises(ValueError, match="no default for steps"):
        run_program("agent", lambda steps: steps)


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (["--steps", "many"], 2, "Invalid value for '--steps'"),
        (["--step", "3"], 2, "No such option: --step"),
        (["--help"], 0, "How a small program ends."),
    ],
)
def test_a_wrong_command_line_ends_before_anything_begins(
    line: list[str], code: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def body(steps: int = 10) -> None:
        pytest.fail("it began")

    monkeypatch.setattr("sys.argv", ["program", *line])
    with pytest.raises(SystemExit) as end:
        run_program("agent", body)
    assert end.value.code == code
    shown = capsys.readouterr()
    assert words in shown.out + shown.err


class FakeDistribution:
    def __init__(self, origin: str | None) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self.origin


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({"url": "file:///home/me/surreal", "dir_info": {"editable": True}}, "pip install -e '/home/me/surreal[plot]'"),
        ({"url": "file:///a%20b", "dir_info": {}}, "pip install '/a b[plot]'"),
        ({"url": "file:///s-0.1.whl", "archive_info": {}}, "pip install 'surreal-rl[plot] @ file:///s-0.1.whl'"),
        (None, "pip install 'surreal-rl[plot]'"),
    ],
)
def test_each_kind_of_installation_has_its_command(
    origin: dict[str, object] | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = None if origin is None else json.dumps(origin)
    monkeypatch.setattr(metadata, "distribution", lambda name: FakeDistribution(text))
    assert install_command("plot") == command


def test_a_damaged_origin_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda name: FakeDistribution("[]"))
    assert install_command("plot") == "pip install 'surreal-rl[plot]'"


def test_options_come_from_parameters_alone_whatever_else_is_annotated(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from surreal.base.system.program import _read_options

    def main(given: int = 3, steps: Missing = 10) -> Missing: ...  # type: ignore[name-defined]  # noqa: F821

    monkeypatch.setattr(sys, "argv", ["program", "--given", "7", "--steps", "4"])
    assert _read_options(main) == {"given": 7, "steps": 4}
    monkeypatch.setattr(sys.modules[main.__module__], "__doc__", "A program.\n\n    usage one\n    usage two\n")
    monkeypatch.setattr(sys, "argv", ["program", "--help"])
    with pytest.raises(SystemExit) as caught:
        _read_options(main)
    assert caught.value.code == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "usage one" in lines and "usage two" in lines
