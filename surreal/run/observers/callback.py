"""Callbacks of a run, and calling all of them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

from surreal.base.errors import StoppedError, SurrealError, UserCodeError, describe_method
from surreal.base.ranges import NonNegative, PositiveInt, checked

logger = logging.getLogger(__name__)

if TYPE_CHECKING:  # an agent's process needs neither
    from surreal.learner import Learner
    from surreal.run.evaluation import EvaluationRound


class Stop(Enum):
    """The answer of a callback that ends the run."""

    STOP = "stop"


STOP: Final = Stop.STOP
#: What a callback's method returns.
Answer = Literal[Stop.STOP] | None


class Callback:
    """Base of all callbacks. A subclass overrides the events that it needs.

        class BestOnly(Callback):
            def on_evaluation(self, result):
                print(result.version, result.mean_return)

    The configuration names it, and each process of the run makes its own one, which gets the events there:

        callbacks:
          - class: my_callbacks.BestOnly

    | method | process |
    |---|---|
    | `on_update`, `on_broadcast`, `on_checkpoint` | the learner, or each parameter server |
    | `on_episode` | each agent, each RLX server |
    | `on_evaluation` | the evaluation |

    A constructor that names them gets from the run: `run` (its id), `process` (such as "agent-0"), `run_dir` (a Path,
    which an agent on another machine does not share) and `seed`; all else comes from `args`.

    A method that returns `surreal.STOP` ends the run in order, as a limit does: agents flush, the learner writes a
    checkpoint, and the evaluation plays a last round.

    Methods run on the process's working thread: what they wait for, the process waits for. What they raise ends the run
    with its reason. With gradients at several agents of one process, `on_episode` is called by one thread at a time.
    """

    def on_update(self, learner: Learner) -> Answer:
        """An update is done: `learner.updates`, `learner.global_step`, `learner.model`, `learner.reading`."""

    def on_broadcast(self, version: int, updates: int) -> Answer:
        """Called when parameters of a version, after some number of updates, are on their way to the agents."""

    def on_checkpoint(self, path: str, updates: int) -> Answer:
        """The state after so many updates is written to this file; on its way to other places, if there are any."""

    def on_episode(self, episode_return: float, length: int) -> Answer:
        """An episode of an agent has ended: undiscounted return, and length in env steps."""

    def on_evaluation(self, result: EvaluationRound) -> Answer:
        """A round of the evaluation is over: `result.mean_return`, `result.version`, `result.scores`."""

    def close(self) -> None:
        """The process ends; called once, also if the run failed."""

    def set_environments(self, **attributes: Any) -> None:
        """Set attributes of the environments of all agents, by name, from each one's next episode on.

            self.set_environments(difficulty=2)

        They reach agents on other machines within about a second, and agents that start later as well. An environment
        without such an attribute ends the run, and names the most similar one. Environments of the evaluation keep the
        attributes that they were made with. With `env.pool: vector`, all environments of an agent change together, when
        one of them ends an episode.

        Args:
            attributes: values of JSON: numbers, texts, lists.

        Raises:
            EnvError: environments of this run cannot be set: clients of RLX, games of several players, `env.pool:
                envpool`. A run whose callback names this method is refused at its start.
            ValueError: a value is not of JSON, or not finite.
        """
        self._set_attributes(attributes)

    def _set_attributes(self, attributes: Mapping[str, Any]) -> object:
        raise SurrealError("set_environments works while a run calls the callback")


class StopWithoutImprovement(Callback):
    """Ends the run when the evaluation has not improved for some rounds.

    It counts rounds since its process started, so a resumed run, or a restarted evaluation, counts again.

    Args:
        rounds: rounds in a row without a better mean return than the best so far; raising it waits for longer.
        min_improvement: smallest increase of the mean return that counts; raising it ends sooner.
    """

    @checked
    def __init__(self, rounds: PositiveInt = 10, min_improvement: NonNegative = 0.0) -> None:
        self.rounds = rounds
        self.min_improvement = min_improvement
        self._best, self._without = -math.inf, 0

    def on_evaluation(self, result: EvaluationRound) -> Answer:
        if result.mean_return > self._best + self.min_improvement:
            self._best, self._without = result.mean_return, 0
        else:
            self._without += 1
        return STOP if self._without >= self.rounds else None


_HOOKS = ("on_update", "on_broadcast", "on_checkpoint", "on_episode", "on_evaluation")


class Callbacks:
    """Calls the callbacks that override a method, in order; a method without an override costs almost nothing.

    What one raises is wrapped into a `UserCodeError` that names the method, its file and line.

    Args:
        end: ends the run for a reason; called when a method returns `STOP`.
        set_attributes: sets attributes of environments; None refuses.
    """

    def __init__(
        self,
        callbacks: Sequence[Callback] = (),
        end: Callable[[str], object] = lambda _: None,
        set_attributes: Callable[[Mapping[str, Any]], object] | None = None,
    ) -> None:
        if set_attributes is not None:
            for each in callbacks:
                each._set_attributes = set_attributes  # type: ignore[method-assign,assignment]
        self._callbacks = callbacks
        self._end = end
        self._heard: dict[str, list[Callable[..., object]]] = {
            hook: [getattr(one, hook) for one in callbacks if getattr(type(one), hook) is not getattr(Callback, hook)]
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
        """Close all callbacks; their errors are only logged, because the process ends anyway."""
        for callback in self._callbacks:
            try:
                callback.close()
            except Exception:
                logger.exception("%s failed", describe_method(callback.close))

    def _call(self, hook: str, *values: Any) -> None:
        for method in self._heard[hook]:
            try:
                answer = method(*values)
            except (StoppedError, SurrealError):
                raise
            except Exception as error:
                raise UserCodeError(f"{describe_method(method)} failed: {type(error).__name__}: {error}") from error
            if answer is STOP:
                self._end(f"callback: {method.__qualname__} asked for it")
