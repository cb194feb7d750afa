"""The command that adds an extra names where the installation came from."""

from __future__ import annotations

import json
from importlib import metadata

import pytest

from surreal.base.system.installing import install_command


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
