"""The pages that say how to do one thing: a reader does it, in an empty folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tests.e2e.reader import Reader
from tests.pages import ROOT, read_page
from tests.ports import claim_port

if TYPE_CHECKING:
    from tests.e2e.conftest import Workplace


def page(name: str) -> Any:
    return read_page(ROOT / "docs" / f"{name}.md")


def result_of(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("runs/*/result.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_the_first_ten_minutes(workplace: Workplace) -> None:
    with Reader(workplace) as reader:
        reader.follow(page("getting-started"))
    assert (reader.folder / "curve.png").stat().st_size > 10_000
    assert 8 < float(reader.output) <= 500


def test_an_environment_of_one_s_own_is_trained(workplace: Workplace) -> None:
    with Reader(workplace) as reader:
        reader.follow(page("own-environment"))
    assert "stop_at_return" in result_of(reader.folder)["reason"]


def test_an_algorithm_of_one_s_own_trains_cartpole(workplace: Workplace) -> None:
    """Random play returns 22; the bound on env steps is several times what it takes."""
    blocks = page("own-algorithm")
    assert len(blocks[0].text.strip().splitlines()) <= 25
    with Reader(workplace) as reader:
        reader.follow(blocks)
    assert "stop_at_return" in result_of(reader.folder)["reason"]


def test_a_game_elsewhere_is_learned(workplace: Workplace) -> None:
    with Reader(workplace, {"7001": claim_port()}) as reader:
        reader.follow(page("remote-game"))
    metrics = (reader.folder / "runs" / "hunt" / "metrics.jsonl").read_text()
    lengths = [float(found) for found in re.findall(r'"client/length": ([\d.]+)', metrics)]
    # The prey is 3.3 fields away on average, and random play takes 20 steps. Single episodes vary: the policy explores.
    assert len(lengths) > 100
    assert fmean(lengths[-100:]) < 12


def test_a_game_in_a_browser_is_learned(
    workplace: Workplace, require_tool: Callable[..., str], tmp_path_factory: Any
) -> None:
    from tests.browser import Browser

    program = require_tool("chromium", "chromium-browser", "google-chrome")
    port = claim_port()
    with Reader(workplace, {"7001": port}) as reader:
        reader.follow(page("browser-game"))
        browser = Browser(program, tmp_path_factory.mktemp("browser") / "profile")
        try:
            browser.open(f"http://127.0.0.1:{port}/app/")
            browser.wait("Number(document.getElementById('right').textContent) >= 90", timeout_s=200)
            assert browser.complaints == []
        finally:
            browser.close()


def test_a_replay_goes_to_files_and_is_learned_from(workplace: Workplace) -> None:
    with Reader(workplace, {"6379": claim_port()}) as reader:
        reader.follow(page("offline"))
    result = json.loads((reader.folder / "runs" / "offline" / "result.json").read_text())
    assert result["updates"] == 300
