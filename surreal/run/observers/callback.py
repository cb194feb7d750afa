"""`Callback`: told what happens in the processes of a run; the base of a user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # an agent's process needs neither
    from surreal.learner import Learner
    from surreal.run.evaluation import EvaluationRound


class Callback:
    """Base of all callbacks. A subclass overrides what it wants to hear of.

        class BestOnly(Callback):
            def on_evaluation(self, result):
                print(result.version, result.mean_return)

    The configuration names it, and each process of the run makes one of its own, which hears what happens there:

        callbacks:
          - class: my_callbacks.BestOnly

    | method | process |
    |---|---|
    | `on_update`, `on_broadcast`, `on_checkpoint` | the learner, or each parameter server |
    | `on_episode` | each agent, each RLX server |
    | `on_evaluation` | the evaluation |

    A constructor that names them gets from the run: `run` (its id), `process` (such as "agent-0"), `run_dir` (a Path,
    which an agent on another machine does not share) and `seed`; all else comes from `args`.

    Methods run on the process's working thread: what they wait for, the process waits for. What they raise ends the run
    with its reason. With gradients at several agents of one process, `on_episode` is called by one thread at a time.
    """

    def on_update(self, learner: Learner) -> None:
        """An update is done: `learner.updates`, `learner.global_step`, `learner.model`, `learner.reading`."""

    def on_broadcast(self, version: int, updates: int) -> None:
        """Parameters of this version, after so many updates, are on their way to the agents."""

    def on_checkpoint(self, path: str, updates: int) -> None:
        """The state after so many updates is written to this file; on its way to other places, if there are any."""

    def on_episode(self, episode_return: float, length: int) -> None:
        """An episode of an agent has ended: undiscounted return, and length in env steps."""

    def on_evaluation(self, result: EvaluationRound) -> None:
        """A round of the evaluation is over: `result.mean_return`, `result.version`, `result.scores`."""

    def close(self) -> None:
        """The process ends; called once, also if the run failed."""
