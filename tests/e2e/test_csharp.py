"""A game in C# as an app: it is built, and four of it learn to catch balls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace


def test_catch_is_learned_until_95_of_100_balls_are_caught(workplace: Workplace, require_tool: Any) -> None:
    require_tool("mcs")
    assert workplace.run("new", "balls", "-e", "csharp")[0] == 0
    code, output = workplace.run("run", "-c", "balls/app.yaml", "-n", "4", "--set", "rlx.port=0")
    assert code == 0, output
    assert "all environments have played their episodes" in output
    assert workplace.processes() == []
