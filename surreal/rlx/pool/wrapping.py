"""Applies the configured wrappers to environments that are elsewhere: a server has their states, not the environments.

So these wrappers must be functions of one observation, reward or action: gymnasium's `ObservationWrapper`,
`RewardWrapper` and `ActionWrapper`, and subclasses that leave `step` and `reset` alone. They stand around an
environment that is nothing but its spaces, every session has its own, and only the functions are called. What acts in
the environment itself (skipped frames, time limits, lost lives) is the client's.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import ActionWrapper, ObservationWrapper, RewardWrapper, Wrapper

from surreal.base.errors import EnvError
from surreal.base.specs import ObsSpec
from surreal.envs.wrappers.named import WrapperSpec, apply_wrappers, find_wrapper, select_wrappers
from surreal.rlx.pool.ranges import DEFAULT_LIMITS, ValueLimits, widest_range
from surreal.rlx.pool.states import Leaves, StateReader
from surreal.rlx.protocol.errors import RlxRequestError

logger = logging.getLogger(__name__)

#: Wrappers of these kinds can be applied; the last changes spaces or pictures only.
_KINDS: tuple[type[Any], ...] = (ObservationWrapper, RewardWrapper, ActionWrapper, Wrapper)


class RemoteWrappers:
    """The wrappers of all sessions of one server.

    Args:
        specs: the innermost first.
        training: whether some sessions train; False leaves out the wrappers that are for training only.

    Attributes:
        observation_space, action_space: as the agent sees them, frames not stacked.
        reader: reads such observations.
        limits: the limits, as given.

    Raises:
        EnvError: a wrapper does not exist, refuses the spaces, or has to be at the environment itself; or evaluation,
            without the wrappers of training, would have other spaces.
    """

    def __init__(
        self,
        specs: Sequence[WrapperSpec],
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        *,
        training: bool = True,
        limits: ValueLimits = DEFAULT_LIMITS,
    ) -> None:
        for spec in select_wrappers(specs, training=training):
            check_remote(spec)
        self._specs = list(specs)
        self._bare = _Elsewhere(observation_space, action_space)
        env = apply_wrappers(self._bare, self._specs, training=training)
        plain = apply_wrappers(self._bare, self._specs, training=False)
        for kind, space, other in (
            ("observation", env.observation_space, plain.observation_space),
            ("action", env.action_space, plain.action_space),
        ):
            if space != other:
                raise EnvError(f"with the wrappers of training the {kind} space is {space}, without them {other}")
        self.observation_space, self.action_space = env.observation_space, env.action_space
        try:
            self.reader = StateReader(self.observation_space)
            self._wire_spec = ObsSpec.from_space(observation_space)
        except ValueError as error:
            raise EnvError(str(error)) from error
        self.limits = limits
        _layers(env, self._bare)

    def open(self, *, training: bool) -> SessionWrappers:
        first = next((i for i, spec in enumerate(self._specs) if spec.is_training_only), len(self._specs))
        try:
            counted = apply_wrappers(self._bare, self._specs[:first], training=training)
            env = apply_wrappers(counted, self._specs[first:], training=training)
        except EnvError as error:
            raise RlxRequestError(str(error)) from error
        return SessionWrappers(
            _layers(env, self._bare), counted, self._wire_spec, self.reader, self._bare.action_space, self.limits
        )


class SessionWrappers:
    """The wrappers of one session, which may have a state."""

    def __init__(
        self,
        layers: Sequence[Wrapper[Any, Any, Any, Any]],
        counted: gymnasium.Env[Any, Any],
        wire_spec: ObsSpec,
        reader: StateReader,
        action_space: gymnasium.Space[Any],
        limits: ValueLimits,
    ) -> None:
        self._observations = [layer for layer in layers if isinstance(layer, ObservationWrapper)]
        self._actions = [layer for layer in reversed(layers) if isinstance(layer, ActionWrapper)]
        # Layers up to this one are the game's own: returns are counted in what they make of rewards.
        number = next((i + 1 for i, layer in enumerate(layers) if layer is counted), 0)
        self._own_rewards = [layer for layer in layers[:number] if isinstance(layer, RewardWrapper)]
        self._rewards = [layer for layer in layers[number:] if isinstance(layer, RewardWrapper)]
        self._wire_spec, self._spec = wire_spec, reader.spec
        self._reader = reader
        # Bounds of what wrappers make are not a client's to keep, and often just the ones from before.
        self._ranges = [widest_range(leaf, limits) for leaf in reader.spec.leaves]
        self._action_space = action_space
        self._has_plain_actions = not isinstance(action_space, gymnasium.spaces.Dict | gymnasium.spaces.Tuple)

    def observation(self, leaves: Leaves) -> Leaves:
        """Make the agent's observation of a client's leaves, as `StateReader.read` returns them: leaves in the same
        form, in new memory. Raises `RlxRequestError` if a wrapper failed, or made something else than its space says,
        `RlxValueError` for a value that is not finite, or too large.
        """
        if not self._observations:
            return leaves
        # Copied, as wrappers may write into what they get, which would be the client's message; numbers are scalars.
        sent = [np.array(x).reshape(leaf.shape)[()] for x, leaf in zip(leaves, self._wire_spec.leaves, strict=True)]
        obs = self._wire_spec.unflatten(sent)
        for layer in self._observations:
            obs = _call(layer, layer.observation, obs)
        try:
            arrays = [np.array(array) for array in self._spec.flatten(obs)]
        except (TypeError, ValueError) as error:
            raise RlxRequestError(f"what wrappers made of the state does not fit its space: {error}") from error
        for array, leaf, within in zip(arrays, self._spec.leaves, self._ranges, strict=True):
            if array.shape != leaf.shape:
                raise RlxRequestError(f"wrappers made a state of shape {array.shape}, their space has {leaf.shape}")
            if within is not None:
                within.check(array)
        return [array if array.ndim else array.reshape(1) for array in arrays]

    @property
    def changes_actions(self) -> bool:
        """Whether clients get other actions than the agent chose."""
        return bool(self._actions)

    def nothing(self) -> Leaves:
        """Return an observation for a terminal state that was not sent: no learner bootstraps from it."""
        return self._reader.nothing()

    def rewards(self, reward: float) -> tuple[float, float]:
        """Return the reward for the episode's return, and the reward for learning."""
        for layer in self._own_rewards:
            reward = _call(layer, layer.reward, reward)
        learned = reward
        for layer in self._rewards:
            learned = _call(layer, layer.reward, learned)
        try:
            return float(reward), float(learned)
        except (TypeError, ValueError) as error:
            raise RlxRequestError(f"wrappers made a reward that is not a number: {error}") from error

    def action(self, action: Any) -> Any:
        """Convert the agent's action for the client."""
        if not self._actions:
            return action
        for layer in self._actions:
            action = _call(layer, layer.action, action)
        if not self._has_plain_actions:
            return action
        array = np.asarray(action, self._action_space.dtype)
        return array if array.ndim else array.item()


class _Elsewhere(gymnasium.Env[Any, Any]):
    """A placeholder for an environment of a client."""

    def __init__(self, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def __str__(self) -> str:
        return f"states of {self.observation_space} and actions of {self.action_space}"


def check_remote(spec: WrapperSpec) -> None:
    """Check a wrapper's class before it is instantiated."""
    factory = find_wrapper(spec.name)
    if inspect.isclass(factory) and not _is_remote(factory):
        raise _at_the_client(spec.name)


def _is_remote(kind: type[Any]) -> bool:
    return any(issubclass(kind, base) and kind.step is base.step and kind.reset is base.reset for base in _KINDS)


def _at_the_client(name: str) -> EnvError:
    return EnvError(
        f"wrapper {name} acts in the environment itself, which an RLX server does not have: let clients apply it "
        "(on_client: true, and `surreal rlx-client --wrapper`), or leave it out"
    )


def _layers(env: gymnasium.Env[Any, Any], bare: _Elsewhere) -> list[Wrapper[Any, Any, Any, Any]]:
    """List the wrappers around `bare`, the innermost first."""
    layers: list[Wrapper[Any, Any, Any, Any]] = []
    layer: Any = env
    while layer is not bare:
        if not isinstance(layer, Wrapper) or not _is_remote(type(layer)):
            raise _at_the_client(type(layer).__name__)
        layers.append(layer)
        layer = layer.env
    return layers[::-1]


def _call(layer: Wrapper[Any, Any, Any, Any], function: Callable[[Any], Any], value: Any) -> Any:
    try:
        return function(value)
    except Exception as error:
        # Whatever a wrapper trips over, it concerns this session only.
        logger.debug("%s failed", type(layer).__name__, exc_info=True)
        raise RlxRequestError(f"wrapper {type(layer).__name__} failed: {type(error).__name__}: {error}") from error
