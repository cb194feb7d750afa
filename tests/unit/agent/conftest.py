"""Agents act in torch: each would measure whether NumPy is faster, and the two round differently."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def acts_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("surreal.agent.base.choose_numpy", lambda *_: None)
