"""Every block of every page is carried out, in a form that takes seconds, or says above it why not.

Pages that are to be followed from the first line to the last are in tests/e2e, which has commands take their full
effect. This is for the others: pages to look things up, whose commands need no order and would train for minutes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.pages.commands import Commands
from tests.integration.pages.desk import Desk, make_stock
from tests.integration.pages.programs import AROUND, Around
from tests.integration.pages.settings import check_section
from tests.pages import FOLLOWED, ROOT, Kind, read_page

#: Box2D's extension crashes where this warning, which it causes, is an error.
pytestmark = [
    pytest.mark.filterwarnings("ignore:builtin type .* has no __module__ attribute:DeprecationWarning"),
    # The page says so, too.
    pytest.mark.filterwarnings("ignore:`torch.jit.load` is deprecated:DeprecationWarning"),
]

PAGES = {
    str(path.relative_to(ROOT)): read_page(path)
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if path.stem not in FOLLOWED
}
WITH_BLOCKS = sorted(name for name, blocks in PAGES.items() if blocks)


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_stock(tmp_path_factory.mktemp("stock") / "desk")


@pytest.fixture
def desk(stock: Path, tmp_path: Path, redis_server: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    made = Desk(tmp_path / "desk", stock, redis_server.address, monkeypatch)
    yield made
    made.close()


@pytest.mark.parametrize("page", WITH_BLOCKS)
def test_what_a_page_shows_works(
    page: str, desk: Desk, monkeypatch: pytest.MonkeyPatch, require_tool: Callable[..., str]
) -> None:
    blocks = [block for block in PAGES[page] if block.is_run]
    commands = Commands(desk, monkeypatch)
    programs = [block for block in blocks if block.language == "python"]
    around = AROUND.get(page) or [Around()] * len(programs)
    assert len(around) == len(programs), f"tests/integration/pages/programs.py is not about the programs of {page}"
    # Commands may name files that the page shows further down.
    for block in blocks:
        if block.kind is Kind.FILE:
            (desk.folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (desk.folder / block.file).write_text(block.text)
    for block in blocks:
        try:
            if block.language == "python":
                desk.run(block, around[programs.index(block)])
            elif block.kind is Kind.COMMANDS:
                commands.carry_out(block)
            elif block.language == "yaml":
                check_section(block.text, desk.folder)
            elif block.language == "js":
                desk.run_javascript(block.text, require_tool("node"))
            elif block.language == "cpp":
                desk.check_cpp(block.text, require_tool("g++", "c++"))
            else:
                assert block.language in ("", "text"), f"no test knows what to do with {block.language}"
        except BaseException as error:
            error.add_note(f"{page}, block at line {block.line}")
            raise


def test_a_block_that_nobody_runs_says_why() -> None:
    reasons = [block.marks["not run"] for blocks in PAGES.values() for block in blocks if not block.is_run]
    assert reasons and all(len(reason.split()) > 3 for reason in reasons), reasons


def test_code_is_in_fences() -> None:
    """Indented, it would be a block that nobody sees."""
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        assert re.findall(r"(?:^|\n)\n    \S.*", prose) == [], page


def test_tests_of_programs_that_are_elsewhere_are_there() -> None:
    for name, programs in AROUND.items():
        for around in programs:
            assert not around.elsewhere or Path(name).name in (ROOT / around.elsewhere).read_text()
