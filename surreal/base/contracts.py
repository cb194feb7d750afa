"""Contracts: the interfaces between the parts of a run. `surreal.run.build` makes the parts and passes them in.

In an agent process (`surreal.agent.AgentLoop`):

    while not stop.is_set():
        batch = pool.recv(timeout_s=0.1)                            # EnvPool: LAST rows, then those that want actions
        acting = batch[batch.num_last:]                             # of each column
        agent.global_step = sender.global_step
        action = agent.act_batch(acting.obs, acting.explore, acting.env_ids, acting.kind == FIRST)      # AgentView
        pool.send(action.actions, acting.env_ids)
        sender.send_batch(batch, action)                            # StepSender
        if a round is over:                                         # `surreal.agent.Rounds`
            parameters.release()                                    # RoundParameters
            while not parameters.has_learned(*sender.sent_through):
                agent.model.wait_for_version(agent.model.version + 1, timeout_s)                        # ModelView
            parameters.hold()

In a learner process (`surreal.run.session.learner`):

    intake.take_in()                                                # BatchIntake
    while not stop.is_set():
        batch = intake.next_batch(timeout_s=0.2)
        if batch is not None:
            learner.optimize(i, batch)                              # LearnerView; within it:
                stepper.share_counts()                              # Stepper: here, with other ranks, or elsewhere
                stepper.step(gradients of a loss)                   # any number of times
                stepper.end_learning(parts)
                replay.update_priorities(batch.sample_info, p)      # ReplayView: the replay, seen by its learner
        if it is time:
            broadcaster.broadcast(model, message)                   # Broadcaster
            source.commit(broadcaster.version)                      # BatchSource: a replay
        broadcaster.maintain()

Contracts within one package stay there: games and their opponents (`surreal.envs.players`), the hooks of a replay
(`surreal.replay`), connections of the RLX server (`surreal.rlx`). This module imports neither torch nor Redis: pools
and RLX clients work without them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol, Self

import gymnasium
import numpy as np
from numpy.typing import NDArray

from surreal.base.specs import ObsSpec
from surreal.base.types import Action, Gradients, Obs, SampleInfo, StepBatch

#: A torch tensor.
Tensor = Any


class EnvPool(ABC):
    """Environments that are driven together: in this process, in workers, or behind RLX sessions.

    An environment that ends gives its true final observation as a LAST row, and its next FIRST row in the same batch or
    in a later one. No row mixes two episodes. `closed_ids` names environments that closed without an observation. The
    arrays of a batch are read-only and valid until the next `recv`.

    Optional columns of `StepBatch.info`, each [N, ...]:

        episode_return   float64, on LAST rows the sum of the raw rewards, nan elsewhere; only present if num_last > 0.
                         Also nan on a LAST row if a wrapper cut an episode that continues below it (a lost Atari life)
        episode_length   int64, on LAST rows the steps of the episode, 0 elsewhere; present with `episode_return`
        action_mask      bool [N, n], which of the n discrete actions are legal, from the environment's
                         info["action_mask"]
        is_intervention  bool, whether something else replaced the action that led to this row. Both are only present
                         if it did in any row
        executed_action  [N, *action_shape], what replaced it, in the agent's form, from info["executed_action"]
    """

    num_envs: int  #: slots: every id in `env_ids` is smaller
    observation_space: gymnasium.Space[Any]  #: of one environment
    action_space: gymnasium.Space[Any]  #: of one environment: Discrete from 0, MultiDiscrete, MultiBinary or Box
    obs_spec: ObsSpec  #: the leaves of one observation
    #: outputs of the policy that environments ask for, next to the actions: "q_values", "probabilities"
    wants: frozenset[str] = frozenset()
    #: whether an action may come too late for its environment, so that none should wait for a copy of parameters
    keeps_time: bool = False

    @abstractmethod
    def recv(self, timeout_s: float = 1.0) -> StepBatch:
        """Wait at most `timeout_s` for rows, perhaps none; raises `EnvError` if an environment failed."""

    @abstractmethod
    def send(self, actions: NDArray[Any], env_ids: NDArray[np.int64]) -> None:
        """Pass actions [n, *action_shape] to the environments `env_ids` [n], which wait for them; else `ValueError`."""

    def show(self, outputs: Mapping[str, NDArray[Any]], env_ids: NDArray[np.int64]) -> None:
        """Pass outputs [n, ...] of the policy to environments before `send`; only called if `wants` has any."""

    @abstractmethod
    def close(self) -> None:
        """Close the environments; may be called twice."""

    def awaited(self) -> str:
        """Describe in a few words what an empty `recv` waits for; "" if the pool itself reports it."""
        return ""

    def metrics(self) -> dict[str, float]:
        """Return counters since the start, and means over the last episodes."""
        return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Kept(Protocol):
    """Something that checkpoints can keep: a model, an optimizer, or anything with these two methods."""

    def tensors(self) -> dict[str, Tensor]:
        """Return live tensors by name."""

    def load_tensors(self, tensors: dict[str, Tensor], /) -> None:
        """Restore tensors whose names, shapes and dtypes were checked; {} if there are none and may be none."""


class ModelView(Kept, Protocol):
    """A model whose parameters another thread may replace (`surreal.base.pytorch.Module`)."""

    version: int  #: version of the parameters, 0 before the first replacement
    failure: Exception | None  #: why the parameters can no longer be updated

    @property
    def scales_rewards(self) -> bool:
        """Whether learners divide rewards by the spread of returns, which agents must then record."""

    def load_tensors(
        self, tensors: Mapping[str, Tensor], version: int | None = None, header: Mapping[str, Any] | None = None
    ) -> None:
        """Replace all parameters, or none and raise `ContractError` if they do not fit; see `surreal.base.pytorch`."""

    def wait_for_version(self, version: int, timeout_s: float) -> bool:
        """Wait at most `timeout_s` for parameters of this version or a later one; returns whether they came."""


class AgentView(Protocol):
    """An agent as loops and evaluations drive it, on one thread (`surreal.agent.Agent`)."""

    global_step: int | None  #: env steps of the whole run, for schedules; the loop sets it
    shows: frozenset[str]  #: outputs that `Action.outputs` is to have, if the model gives them; the loop sets it

    @property
    def model(self) -> ModelView:
        """The model that chooses the actions."""

    @property
    def wants_outcomes(self) -> bool:
        """Whether `observe` is called."""

    def observe(self, batch: StepBatch) -> None:
        """Take a pool's rows, which the next `recv` may overwrite, before the actions for them are chosen."""

    def act_batch(
        self,
        obs: Obs,
        explore: NDArray[np.bool_],
        slots: NDArray[np.int64],
        is_first: NDArray[np.bool_],
        action_mask: NDArray[np.bool_] | None = None,
    ) -> Action:
        """Choose the actions for N rows of a pool.

        Args:
            obs: [N, *obs_shape] array, or nested dicts and tuples of them.
            explore: [N] rows that may explore; eval mode takes none of them, sample mode all.
            slots: [N] slot of each row.
            is_first: [N] rows that begin an episode.
            action_mask: [N, n] legal discrete actions, for agents that can choose among them.

        Raises:
            SurrealError: what ended the listener that kept the model's parameters up to date.
            UserCodeError: the actions do not fit the environment's space.
        """

    def metrics(self) -> dict[str, float]:
        """Return numbers for the run's telemetry, named `agent/what_unit`; called from any thread."""


class StepSender(Protocol):
    """Destination of experience (`surreal.distributed.ExpSender`). All methods copy what they are given.

    Those that send wait for room in the stream, and raise `ReplayFullError` or `RedisUnavailableError` after a limit.
    """

    @property
    def global_step(self) -> int:
        """Env steps of the whole run as last heard."""

    @property
    def sent_through(self) -> tuple[str, int]:
        """Name of this sender, and the number of its last chunk that was acknowledged."""

    def send_batch(self, batch: StepBatch, action: Action) -> None:
        """Take a batch and the actions for its rows `[num_last:]`."""

    def send_outcomes(self, batch: StepBatch) -> None:
        """Take a batch whose actions are chosen later."""

    def send_actions(self, env_ids: NDArray[np.int64], record: NDArray[np.bool_], action: Action) -> None:
        """Take the actions for rows [n] of `send_outcomes`, by env slot; `record` [n] as in their batch."""

    def flush_due(self) -> None:
        """Send experience that has waited too long; called while no environment is ready."""

    def flush(self) -> None:
        """Send all steps that are complete."""


class RoundParameters(Protocol):
    """Source of newer parameters, for agents that act in rounds (`surreal.run.session.acting.ListenedParameters`)."""

    def hold(self) -> None:
        """Keep the parameters as they are."""

    def release(self) -> None:
        """Allow newer parameters to arrive."""

    def has_learned(self, sender: str, sequence: int) -> bool:
        """Whether the parameters learned from a sender's chunks up to this one."""

    def has_updated(self) -> bool:
        """Whether the learner has made an update since the parameters that were held at `release`."""


class ReplayView(Protocol):
    """The part of a replay that a learner uses; every `surreal.replay.Replay` has it."""

    @property
    def global_step(self) -> int:
        """Env steps of the whole run, for schedules."""

    @property
    def wants_priorities(self) -> bool:
        """Whether `update_priorities` does something."""

    def update_priorities(self, sample_info: SampleInfo, priorities: NDArray[Any]) -> None:
        """Take new priorities [B] for a batch that was used."""


class BatchIntake(Protocol):
    """The source of the batches in a learner's loop (`surreal.run.session.intake`)."""

    #: whether batches come only from what `take_in` brought, so that None means: agents must act first
    is_stepped: bool

    def take_in(self) -> None:
        """Bring in the experience that was sent since the last call, or start the threads that do so."""

    def next_batch(self, timeout_s: float) -> Any:
        """Return the next batch, None if none came in time; raises `ThreadFailedError` if a thread died."""


class BatchSource(Protocol):
    """The source of a learner's updates: a replay, or the gradients that a parameter server gets."""

    rng: np.random.Generator  #: source of its random numbers; checkpoints keep its state
    learned: Mapping[str, int]  #: by sender, the number of its last chunk whose complete trajectories were all returned

    @property
    def stream_mode(self) -> Literal["window", "consume"]:
        """`consume` where nothing leaves before it is committed, else `window`."""

    @property
    def global_step(self) -> int:
        """Env steps of the whole run."""

    @property
    def is_starved(self) -> bool:
        """Whether the next batch needs more from the agents."""

    def commit(self, version: int | None = None) -> None:
        """Record the broadcast of a version that learned from all returned batches; never waits."""

    def stop(self) -> None:
        """Stop handing out batches."""

    def join(self, timeout_s: float = 5.0) -> bool:
        """Wait for the threads; returns whether all ended."""

    def state_dict(self) -> dict[str, Any]:
        """Return counters for a checkpoint."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue counting from a checkpoint; raises `ValueError` if a value is not a count."""

    def metrics(self) -> dict[str, float]:
        """Return numbers for the run's telemetry."""


class LearnerView(Protocol):
    """A learner as its process drives it, on one thread (`surreal.learner.Learner`)."""

    updates: int  #: updates done so far, restored ones included

    @property
    def model(self) -> ModelView:
        """The model that it improves."""

    @property
    def is_ready(self) -> bool:
        """Whether the model has its shape and the optimizers exist."""

    @property
    def global_step(self) -> int:
        """Env steps of the whole run, as far as known here; never decreases."""

    @property
    def skipped_updates(self) -> int:
        """Updates of the run that were skipped because their gradients were not finite."""

    def optimize(self, i: int, batch: Any) -> dict[str, float]:
        """Run one update; returns its metrics, if read, or raises `DivergedError` after too many skipped ones."""

    def on_global_step(self, step: int) -> None:
        """Set a lower bound of `global_step`, if the replay does not know it."""

    def rebuild(self) -> None:
        """After a divergence, make optimizers and other networks again from the current model."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a bit-exact resume needs, tensors and state; raises `CheckpointError` without a shape."""

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, or nothing and raise `CheckpointError` if it does not fit."""


class Stepper(ABC):
    """Moves groups of parameters down gradients; its learner calls it, on the thread that learns."""

    @abstractmethod
    def add_group(
        self, group: str, parameters: Iterable[tuple[str, Tensor]], learning_rate: float | None = None
    ) -> Kept | None:
        """Add an optimizer of a group of parameters; returns None if this process moves none of them."""

    @abstractmethod
    def step(self, gradients: Sequence[Gradients]) -> None:
        """Step down the gradients of one loss, of one or several groups; raises `RankError` if another rank is gone."""

    def start(self) -> None:
        """Begin with a model that has its parameters and is on its device."""

    def share_counts(self) -> None:
        """Add what the filters of other ranks have counted since the last call; at the beginning of an update."""

    def end_learning(self, parts: Iterable[Any]) -> None:
        """End one call of `learn`; `parts` are what checkpoints keep, in the same order on all ranks."""

    def metrics(self) -> dict[str, float]:
        """Return metrics of the steps under full names."""
        return {}


class Broadcaster(Protocol):
    """Publishes a model's parameters, on one thread (`surreal.distributed.TorchBroadcaster`).

    All methods but `propose` raise `RedisUnavailableError` if Redis does not answer in time.
    """

    version: int  #: version that was published last
    message: str  #: message of the parameters that `restore` loaded

    def propose(self, version: int) -> None:
        """Make the next versions larger than `version`, such as that of a checkpoint or of a live agent."""

    def newest_version(self) -> int:
        """Return the largest version that is known here or was published."""

    def read_message(self) -> str:
        """Return the message of the last broadcast; "" without one."""

    def restore(self) -> bool:
        """Load the last broadcast, if any, and continue its versions; raises `ContractError` or `CodecError`."""

    def broadcast(self, model: Any = None, message: str = "") -> int:
        """Publish the current parameters, and return their version; see `surreal.distributed.TorchBroadcaster`."""

    def maintain(self) -> None:
        """Keep others out, and publish lost parameters again; raises `LeaseError` if another broadcaster took over."""

    def close(self) -> None:
        """Release the policy, so that another learner can publish; never raises a Redis error."""
