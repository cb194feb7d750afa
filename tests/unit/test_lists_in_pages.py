"""Lists in the pages that repeat what the code has: extras, templates, layers, subpackages."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from surreal.plugins.apps.environments import templates
from tests.unit.test_import_layers import LAYERS

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def rows(page: Path, header: str) -> list[str]:
    """The first cells of the table below a header row."""
    table = page.read_text().partition(f"| {header} |")[2].partition("\n\n")[0]
    return [line.split("|")[1].strip() for line in table.splitlines()[2:]]


def test_every_extra_is_in_the_table() -> None:
    tree = ast.parse((ROOT / "setup.py").read_text())
    extras = next(
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXTRAS"
    )
    listed = [cell.strip("`") for cell in rows(DOCS / "getting-started.md", "extra | what it adds")]
    assert sorted(listed) == sorted([*extras, "all", "dev"])


def test_every_template_is_in_the_table_with_its_default_algorithm() -> None:
    listed = {cell.split("`")[1] for cell in rows(DOCS / "apps.md", "template | default algorithm | description")}
    assert listed == {template.name for template in templates()}


@pytest.mark.parametrize("page", [DOCS / "architecture.md", ROOT / "CONTRIBUTING.md"])
def test_the_layers_are_those_of_the_code(page: Path) -> None:
    blocks = re.findall(r"```\w*\n(.*?)```", page.read_text(), re.DOTALL)
    block = next(text for text in blocks if text.startswith("plugins\n"))
    listed = [set(line.split()) for line in reversed(block.splitlines())]
    assert listed == LAYERS
