"""The pictures of docs/live-view.md can be drawn again."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[5]


def test_the_pictures_of_the_documentation_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["draw_live_view.py", str(tmp_path)])
    runpy.run_path(str(ROOT / "scripts" / "draw_live_view.py"), run_name="__main__")
    page = (ROOT / "docs" / "live-view.md").read_text()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {path.name for path in (ROOT / "docs" / "images").glob("live-view-*")}
    assert all(f"(images/{name})" in page for name in names)
    for path in tmp_path.iterdir():
        text = path.read_text(encoding="utf-8")
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "").replace("https://www.textualize.io", "")
        assert "left" in text and "agent-1" in text
