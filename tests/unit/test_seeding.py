"""No test depends on luck: what tests draw is seeded, and nothing draws where no seed reaches."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from tests.seeding import seed_draws

TESTS = Path(__file__).parents[1]
SHARED = spaces.Dict({"box": spaces.Box(0, 1, (3,)), "number": spaces.Discrete(1000)})

#: What is seeded by the operating system if it gets no argument.
UNSEEDED = {"default_rng", "SeedSequence", "PCG64", "RandomState", "Random", "SystemRandom", "seed"}
#: What draws from a global generator.
DRAWS = {
    *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "normal", "bernoulli", "multinomial"),
    *("random", "choice", "choices", "shuffle", "uniform", "permutation", "sample"),
}
NAMES = UNSEEDED | DRAWS | {"urandom"}
#: Says, in a comment on the line, why it is right.
REASON = "# unseeded: "


def draw() -> list[Any]:
    """One number of each kind that code may draw without a seed of its own."""
    return [
        random.random(),
        np.random.random(),  # noqa: NPY002 - what others may do
        float(torch.rand(())),
        np.random.default_rng().random(),
        np.random.SeedSequence().entropy,
        spaces.Box(0, 1).sample().tolist(),
        SHARED.sample()["box"].tolist(),
        SHARED.sample()["number"],
    ]


def test_a_test_draws_the_same_in_each_run_and_others_draw_others() -> None:
    found = []
    for name in ("one", "two", "one"):
        seed_draws(name)
        found.append(draw())
    assert found[0] == found[2]
    assert all(a != b for a, b in zip(found[0], found[1], strict=True))
    assert all(a != b for a, b in zip(found[2], draw(), strict=True)), "two draws are two"


def test_a_seed_that_a_test_gives_counts() -> None:
    SHARED.seed(3)
    first = SHARED.sample()
    SHARED.seed(3)
    np.testing.assert_array_equal(first["box"], SHARED.sample()["box"])


def test_the_fixture_seeds_each_test_by_its_name(request: pytest.FixtureRequest) -> None:
    drawn = draw()
    seed_draws(request.node.nodeid)
    assert drawn == draw()


def unseeded(text: str) -> Iterator[str]:
    """Lines that draw where no seed reaches: from generators of the operating system, or while a file is imported."""
    lines = text.splitlines()
    for node, is_at_import in _calls(ast.parse(text)):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name not in NAMES or REASON in lines[node.lineno - 1]:
            continue
        *owner, name = ast.unparse(node.func).rsplit(".", 1)
        is_global = owner in (["random"], ["np.random"], ["torch"]) or name == "sample"
        has_generator = any(keyword.arg == "generator" for keyword in node.keywords)
        if is_at_import and is_global and name in DRAWS and not has_generator:
            yield f"line {node.lineno} draws while the file is imported: {lines[node.lineno - 1].strip()}"
        elif is_at_import and name in UNSEEDED and not node.args and not node.keywords:
            yield f"line {node.lineno} has no seed: {lines[node.lineno - 1].strip()}"
        elif name in ("seed", "SystemRandom", "urandom") and not node.args and not node.keywords:
            yield f"line {node.lineno} asks the operating system: {lines[node.lineno - 1].strip()}"


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, bool]]:
    """Yield each call with whether importing the file makes it."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, True)]
    while waiting:
        node, is_at_import = waiting.pop()
        if isinstance(node, ast.Call):
            yield node, is_at_import
        body = node.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) else []
        inner = {id(part) for part in (body if isinstance(body, list) else [body])}
        for child in ast.iter_child_nodes(node):
            waiting.append((child, is_at_import and id(child) not in inner))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import torch\nX = torch.randn(3)", "line 2 draws while the file is imported"),
        ("import numpy as np\nclass A:\n    rng = np.random.default_rng()", "line 3 has no seed"),
        ("import random\ndef f():\n    random.seed()", "line 3 asks the operating system"),
        ("X = BOX.sample()", "line 1 draws while"),
        ("X = np.random.default_rng(3).normal()\ndef f():\n    return np.random.default_rng()", ""),
        ("X = torch.randn(3, generator=G)\nnp.random.seed()  # unseeded: each process draws others", ""),
    ],
)
def test_what_draws_where_no_seed_reaches_is_found(text: str, problem: str) -> None:
    found = list(unseeded(text))
    assert len(found) == bool(problem)
    assert not problem or found[0].startswith(problem)


def test_no_test_draws_where_no_seed_reaches() -> None:
    texts = {str(path.relative_to(TESTS)): path.read_text() for path in TESTS.rglob("*.py")}
    call = re.compile(rf"\b(?:{'|'.join(NAMES)})\(")  # parsing only files with such a call takes a fourth of the time
    found = {path: list(unseeded(text)) for path, text in texts.items() if call.search(text)}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_pytest_enters_every_folder_with_tests(pytestconfig: pytest.Config) -> None:
    skipped = pytestconfig.getini("norecursedirs")
    folders = {part for path in TESTS.rglob("test_*.py") for part in path.relative_to(TESTS).parts[:-1]}
    assert "build" in folders
    assert [name for name in folders if any(fnmatch(name, pattern) for pattern in skipped)] == []
