"""How a small program ends."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from surreal.errors import ContractError
from surreal.utils.program import run_program


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


def test_a_programs_own_mistake_is_shown_in_full() -> None:
    with pytest.raises(ZeroDivisionError):
        run_program("agent", lambda: 1 / 0)
