"""Which settings the next trial has, and which trials are not worth going on with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from surreal.plugins.sweep.definition.loading import Definition
from surreal.plugins.sweep.definition.space import combinations
from surreal.plugins.sweep.trials import Trial


class Proposer(Protocol):
    """Chooses settings; `optuna_search.OptunaSearch` is the one that learns from the trials before."""

    def ask(self, number: int) -> dict[str, Any] | None:
        """Give the settings of the trial of this number, the first that is not there yet; None: there are enough."""

    def prune(self, trial: Trial, reports: Mapping[int, float]) -> str:
        """Take the returns of a trial so far, by env steps; returns why it is to end, or ""."""

    def tell(self, trial: Trial) -> None:
        """Take how a trial ended."""


class Grid:
    """Every combination, one after the other.

    Args:
        definition: of the sweep.
    """

    def __init__(self, definition: Definition) -> None:
        self._settings = combinations(definition.space)

    def ask(self, number: int) -> dict[str, Any] | None:
        return self._settings[number] if number < len(self._settings) else None

    def prune(self, trial: Trial, reports: Mapping[int, float]) -> str:
        return ""

    def tell(self, trial: Trial) -> None:
        """A grid learns nothing."""
