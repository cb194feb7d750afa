"""Stand-ins for what a learner's session coordinates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class FakeLearner:
    def __init__(self) -> None:
        self.updates = self.skipped_updates = 0
        self.model = SimpleNamespace(is_materialized=True, load_tensors=self._load_tensors)
        self.loaded: dict[str, Any] | None = None
        self.policy: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        return {"tensors": {}, "state": {"updates": self.updates}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loaded = state
        self.updates = state["state"]["updates"]

    def _load_tensors(self, tensors: dict[str, Any], header: dict[str, Any]) -> None:
        self.policy = tensors


class FakeReplay:
    stream_mode = "window"
    global_step = 70

    def __init__(self) -> None:
        self.commits: list[int] = []
        self.learned: dict[str, int] = {}
        self.loaded: object = None
        self.rng = np.random.default_rng(0)

    def commit(self, version: int) -> None:
        self.commits.append(version)

    def metrics(self) -> dict[str, float]:
        return {"replay/newest_version": 2.0}

    def state_dict(self) -> dict[str, int]:
        return {"steps": 70}

    def load_state_dict(self, state: object) -> None:
        self.loaded = state


class FakeBroadcaster:
    def __init__(self) -> None:
        self.version = 0
        self.messages: list[str] = []
        self.message = ""
        self.found: bool | Exception = False
        self.failure: Exception | None = None

    def propose(self, version: int) -> None:
        self.version = max(self.version, version)

    def read_message(self) -> str:
        return self.message

    def newest_version(self) -> int:
        return self.version

    def restore(self) -> bool:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def broadcast(self, model: object, message: str) -> int:
        if self.failure is not None:
            raise self.failure
        self.version += 1
        self.messages.append(message)
        return self.version
