"""`Callbacks`: all callbacks of a process, called as one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from surreal.base.errors import StoppedError, SurrealError, UserCodeError, describe_method
from surreal.run.observers.callback import Callback

if TYPE_CHECKING:
    from surreal.learner import Learner
    from surreal.run.evaluation import EvaluationRound

logger = logging.getLogger(__name__)

_HOOKS = ("on_update", "on_broadcast", "on_checkpoint", "on_episode", "on_evaluation")


class Callbacks:
    """Calls those that override a method, in their order; a method that nobody overrides costs nothing to speak of.

    What one raises is wrapped into a `UserCodeError` that names the method, its file and line.

    Args:
        callbacks: of this process.
    """

    def __init__(self, callbacks: Sequence[Callback] = ()) -> None:
        self._callbacks = callbacks
        self._heard: dict[str, list[Callable[..., None]]] = {
            hook: [
                getattr(each, hook) for each in callbacks if getattr(type(each), hook) is not getattr(Callback, hook)
            ]
            for hook in _HOOKS
        }

    def on_update(self, learner: Learner) -> None:
        if self._heard["on_update"]:
            self._call("on_update", learner)

    def on_broadcast(self, version: int, updates: int) -> None:
        self._call("on_broadcast", version, updates)

    def on_checkpoint(self, path: str, updates: int) -> None:
        self._call("on_checkpoint", path, updates)

    def on_episode(self, episode_return: float, length: int) -> None:
        self._call("on_episode", episode_return, length)

    def on_evaluation(self, result: EvaluationRound) -> None:
        self._call("on_evaluation", result)

    def close(self) -> None:
        """Close all of them; what one raises then is logged, for the process ends anyway."""
        for callback in self._callbacks:
            try:
                callback.close()
            except Exception:
                logger.exception("%s failed", describe_method(callback.close))

    def _call(self, hook: str, *values: Any) -> None:
        for method in self._heard[hook]:
            try:
                method(*values)
            except (StoppedError, SurrealError):
                raise
            except Exception as error:
                raise UserCodeError(f"{describe_method(method)} failed: {type(error).__name__}: {error}") from error
