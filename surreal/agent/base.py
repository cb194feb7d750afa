"""`Agent`: chooses actions with a model, one observation or a batch at a time.

In a plain loop:

    obs, info = env.reset()
    while True:
        action = agent.act(obs)
        obs, reward, done, info = env.step(action)
        if done:
            obs, info = env.reset()
            agent.reset()

In a run, `AgentLoop` calls `act_batch` with the acting rows of a pool. Both end in the one method that a subclass
gives, `_act`, which runs on the acting thread, in inference mode and under the model's lock: no listener thread can
replace parameters in the middle, and the version that is recorded is the version that acted.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType, NoneType
from typing import Any, Literal, NamedTuple, cast, get_args

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from surreal.agent.forward import check_actions, choose_numpy
from surreal.agent.sampler import Sampler
from surreal.agent.slots import SlotMemory
from surreal.agent.transfer import Transfer
from surreal.base import tree
from surreal.base.pytorch import Module, to_array, to_tensors
from surreal.base.specs import ObsSpec
from surreal.base.types import Action, Obs, StepBatch
from surreal.model.in_numpy import NumpyPass

Mode = Literal["training", "eval", "sample"]

#: Turns whose actions are compared with the space.
_CHECKED_TURNS = 100
_NO_EXTRAS: Mapping[str, NDArray[Any]] = MappingProxyType({})


class ActContext(NamedTuple):
    """Information about the N rows that an agent acts for, in addition to the observations."""

    slots: NDArray[np.int64]  #: [N] slot of each row: where its recurrent state and its noise are kept
    is_first: NDArray[np.bool_]  #: [N] rows that begin an episode: what is kept for their slots is over
    action_mask: NDArray[np.bool_] | None  #: [N, n] which discrete actions are legal; None: all


class Acted(NamedTuple):
    """Actions, with the columns to record with them."""

    actions: Any  #: [N, *action_shape] array or tensor of its own memory
    extras: Mapping[str, Any]  #: columns [N, ...]: log-probability, value, recurrent state before the step
    outputs: Mapping[str, Any] = MappingProxyType({})  #: [N, ...] arrays or tensors for `Agent.shows`, not recorded


class Agent(ABC):
    """Base of all agents. A subclass gives `_act`; `initialize`, `close` and `metrics` are optional.

        class GreedyAgent(Agent):
            def _act(self, obs, explore):
                return self.model(obs).argmax(dim=1)

    A constructor that names them gets from the configuration: `action_space` (as agents see it), `index` and `count`
    (of this agent among those of the run), `rng`, `obs_spec`, `exploration`, and `server`: what calls methods of the
    learner or parameter server that are marked as `surreal.distributed.remote` (None where no learner is).

    Args:
        model: the model that actions are computed with; another thread may replace its parameters.
        obs_spec: kind of one observation. With None, the first observation given to `act` is taken to be a single one.
    """

    #: Whether `observe` is called.
    wants_outcomes: bool = False

    def __init__(self, model: Module, *, obs_spec: ObsSpec | None = None) -> None:
        self.model = model
        self.obs_spec = obs_spec
        #: "training" (explore where asked to), "eval" (never explore), or "sample" (draw every action from the policy's
        #: own distribution, which only an agent with a sampler can do)
        self.mode: Mode = "training"
        self.sampler: Sampler | None = None  #: draws actions from the policy's distribution; None: there is none
        self.steps = 0  #: actions chosen in training mode so far
        self.global_step: int | None = None  #: env steps of the whole run as last heard, None outside of a run
        #: names of outputs that environments ask for; `_act` gives those that the model has, in `Acted.outputs`
        self.shows: frozenset[str] = frozenset()
        self._expected: gymnasium.Space[Any] | None = None
        self._turns_to_check = 0
        self._numpy: NumpyPass | None = None  # what computes the model's output; None: torch
        self._chosen_for: Module | None = None
        self._memory: SlotMemory | None = None
        self._transfer: Transfer | None = None  # of a model that is not on the CPU
        self._is_initialized = False
        self._begins = True  # the episodes of the rows that `act` is given next
        self._takes_context = _takes_context(self._act)
        if obs_spec is not None:
            model.materialize(obs_spec)

    @abstractmethod
    def _act(self, obs: Obs, explore: NDArray[np.bool_], context: ActContext) -> Any:
        """Choose one action for each row. Leave `context` out of the signature where it is not needed.

        Args:
            obs: [N, *obs_shape] tensor on the model's device, or nested dicts and tuples of them. It may share memory
                with the environment: not to be kept nor written to.
            explore: [N] rows that may explore; all others take the best action known, and update no filter.
            context: the rows' slots, which of them begin an episode, and which actions are legal.

        Returns:
            Actions [N, *action_shape], an array or tensor that shares no memory with others; or `Acted(actions,
            extras)`.
        """

    @property
    def env_step(self) -> int:
        """Env steps for schedules: those of the whole run if known, else this agent's."""
        return self.steps if self.global_step is None else self.global_step

    def compute(self, obs: Obs, context: ActContext) -> tuple[Any, dict[str, Any]]:
        """Call the model; for `_act`. A recurrent one gets the state of the rows' slots, and its new one is kept.

        Returns:
            The model's output, which holds arrays and `NumpyPolicy` only for an `_act` marked as `reads_arrays`; and
            the columns that a learner needs to do the same: `state` before the step [N, *state_shape], of a recurrent
            model; else none.
        """
        model, before = self.model, None
        if model.state_shape is not None:
            if self._memory is None:
                self._memory = SlotMemory(model.state_shape, model.device)
            before = self._memory.take(context.slots, context.is_first)
        if self._chosen_for is not model:
            obs, self._chosen_for = to_tensors(obs, model.device), model
            self._numpy = choose_numpy(model, obs, before) if self._reads_arrays() else None
        elif self._numpy is not None and not self._numpy.is_current():  # the parameters were replaced, not overwritten
            self._numpy = NumpyPass.of(model)
            obs = to_tensors(obs, model.device) if self._numpy is None else obs
        if self._numpy is not None:
            output, after = self._numpy(tree.map_leaves(to_array, obs), None if before is None else before.numpy())
        else:
            output, after = (model(obs), None) if before is None else model(obs, before)
        if self._memory is None or before is None:
            return output, {}
        self._memory.put(context.slots, torch.as_tensor(after))
        return output, {"state": before}

    def initialize(self) -> None:
        """Prepare what acting needs; called once on the acting thread, before the first action."""

    def observe(self, batch: StepBatch) -> None:
        """Take a pool's rows before the actions for them are chosen; called if `wants_outcomes`, on the acting thread.
        The pool may overwrite them after the next `recv`.
        """

    def close(self) -> None:
        """Release what `initialize` took; called by the agent's owner at the end."""

    def metrics(self) -> dict[str, float]:
        """Return numbers for the run's telemetry, named `agent/what_unit`; called from any thread."""
        return {}

    def expect_actions(self, space: gymnasium.Space[Any]) -> None:
        """Check the actions of the first turns against this space, so that a mismatch is an error."""
        self._expected = space
        self._turns_to_check = _CHECKED_TURNS

    def set_mode(self, mode: str) -> None:
        """Switch between "training", "eval" and "sample"."""
        if mode not in get_args(Mode):
            raise ValueError(f"mode is {mode!r}; it must be 'training', 'eval' or 'sample'")
        if mode == "sample" and self.sampler is None:
            raise ValueError(f"mode is 'sample', but {type(self).__name__} has no sampler; use 'eval'")
        self.mode = cast(Mode, mode)

    def reset(self) -> None:
        """Begin new episodes with the next observations given to `act`: recurrent state and noise start again."""
        self._begins = True

    def act(
        self, obs: Obs, action_mask: NDArray[np.bool_] | None = None, *, first: NDArray[np.bool_] | None = None
    ) -> Any:
        """Choose the action for one observation, or for a batch of them; explores in training mode.

        Args:
            obs: one, or a batch.
            action_mask: [n] of one observation, or [B, n]: which discrete actions are legal, as environments say it in
                `info["action_mask"]`; None: all.
            first: [B] rows of a batch that begin an episode; None: all in the first call and after `reset`, else none.

        Returns:
            For one observation its action, a Python number if the action is a scalar, else an array [*action_shape];
            for a batch an array [B, *action_shape].

        Raises:
            SurrealError: what ended the listener that kept the model's parameters up to date.
            ValueError: the observation has another shape than the first one had.
        """
        if self.obs_spec is None:
            self.obs_spec = ObsSpec.from_obs(obs)
        rows = self.obs_spec.count_rows(obs)
        if rows is None:
            mask = None if action_mask is None else np.asarray(action_mask)[None]
            action = self._act_rows(tree.map_leaves(_add_batch_axis, obs), 1, mask, first)[0]
            return action.item() if np.ndim(action) == 0 else action
        return self._act_rows(obs, rows, action_mask, first)

    def act_batch(
        self,
        obs: Obs,
        explore: NDArray[np.bool_],
        slots: NDArray[np.int64],
        is_first: NDArray[np.bool_],
        action_mask: NDArray[np.bool_] | None = None,
    ) -> Action:
        """Choose the actions for N rows of a pool, see `surreal.base.contracts.AgentView`."""
        if not self._is_initialized:
            self._is_initialized = True
            self.initialize()
        if self.mode == "training":
            self.steps += len(explore)
        else:
            explore = np.full(len(explore), self.mode == "sample")
        model = self.model
        with model.lock, torch.inference_mode():
            if model.failure is not None:
                raise model.failure
            if self._numpy is None:  # else it reads arrays
                obs = to_tensors(obs) if model.is_on_cpu else self._transfer_to(model.device).send(obs)
            if self._takes_context:
                chosen = self._act(obs, explore, ActContext(slots, is_first, action_mask))
            else:
                chosen = self._act(obs, explore)  # type: ignore[call-arg]
            version = model.version
        actions, extras, outputs = chosen, _NO_EXTRAS, _NO_EXTRAS
        if isinstance(chosen, tuple):
            actions, extras = chosen[0], chosen[1] or _NO_EXTRAS
            outputs = chosen[2] if len(chosen) > 2 else outputs
        if not model.is_on_cpu:
            actions, extras = self._transfer_to(model.device).fetch(actions, extras)
        if extras:
            extras = {name: to_array(column) for name, column in extras.items()}
        actions = to_array(actions)
        if self._turns_to_check and self._expected is not None:
            self._turns_to_check -= 1
            check_actions(self._act, self._expected, actions, len(explore))
        if len(actions) != len(explore):
            raise ValueError(f"{type(self).__name__}._act gave {len(actions)} actions for {len(explore)} rows")
        if outputs:
            outputs = {name: to_array(output) for name, output in outputs.items()}
        return Action(actions, extras, version, outputs)

    def _transfer_to(self, device: torch.device) -> Transfer:
        if self._transfer is None or self._transfer.device != device:
            self._transfer = Transfer(device)
        return self._transfer

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy keeps; it chooses again, because its model has other memory."""
        return {**self.__dict__, "_numpy": None, "_chosen_for": None}

    def _reads_arrays(self) -> bool:
        """Whether arrays may take the place of tensors: nothing that a user wrote reads them."""
        own = type(self)
        return (
            getattr(own._act, "reads_arrays", False)
            and own.compute is Agent.compute
            and type(self.sampler) in (Sampler, NoneType)
        )

    def _act_rows(
        self, obs: Obs, count: int, action_mask: NDArray[np.bool_] | None, first: NDArray[np.bool_] | None
    ) -> NDArray[Any]:
        explore = np.ones(count, dtype=np.bool_)
        is_first = np.full(count, self._begins) if first is None else np.asarray(first, np.bool_)
        self._begins = False
        mask = None if action_mask is None else np.asarray(action_mask, np.bool_)
        return self.act_batch(obs, explore, np.arange(count), is_first, mask).actions


def _takes_context(act: Callable[..., Any]) -> bool:
    """Whether an `_act` takes (obs, explore, context). Others take (obs, explore), as does one of `*args` alone."""
    kinds = [parameter.kind for parameter in inspect.signature(act).parameters.values()]
    named = sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)
    return named > 2 or (named == 2 and inspect.Parameter.VAR_POSITIONAL in kinds)


def _add_batch_axis(leaf: Any) -> Any:
    return leaf[None] if isinstance(leaf, np.ndarray | torch.Tensor) else np.asarray(leaf)[None]
