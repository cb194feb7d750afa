"""A person at a keyboard as an expert, in a window of pygame: for `surreal record`, `surreal teach`, and training."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from surreal.base.errors import EnvError, StoppedError
from surreal.envs.actions import ActionAdapter

#: Keys that end an episode.
MARKS = {"return": "success", "backspace": "failure", "delete": "discard"}
_HOLD, _QUIT = "tab", "escape"
#: Keys that raise and lower the components of a continuous action, in this order.
_AXES = (("right", "left"), ("up", "down"), ("d", "a"), ("w", "s"))
_DEFAULT_FPS = 30
HELP = (
    "keys of actions: {keys}; Tab keeps control or lets go, Enter marks a success, Backspace a failure, "
    "Delete discards the episode, Esc ends"
)


class Controls:
    """Maps the keys that are held to an action of the environment.

    Args:
        env: one with `get_keys_to_action` (Atari games have it) names its own keys. Otherwise, arrows and digits choose
            discrete actions, and arrows, WASD push the components of a vector to their bounds.

    Raises:
        EnvError: there are no keys for such a space.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        space, named = env.action_space, getattr(env.unwrapped, "get_keys_to_action", None)
        self._axes: tuple[tuple[str, str], ...] = ()
        self._space = space
        self.actions: Mapping[frozenset[str], Any] = {}
        if named is not None and isinstance(space, spaces.Discrete):
            self.actions = {_names(keys): action for keys, action in named().items()}
        elif isinstance(space, spaces.Discrete):
            arrows = {2: "left right", 3: "left down right", 4: "left down right up"}.get(int(space.n), "").split()
            keys = [*enumerate(arrows), *enumerate("0123456789"[: int(space.n)])]
            self.actions = {frozenset((key,)): int(space.start) + number for number, key in keys}
        elif isinstance(space, spaces.Box) and space.is_bounded() and 0 < np.prod(space.shape) <= len(_AXES):
            self._axes = _AXES[: int(np.prod(space.shape))]
        else:
            raise EnvError(f"there are no keys for actions of {space}; use --expert module:Class")
        (idle,) = ActionAdapter(space).rows(ActionAdapter(space).default()[None])
        self._idle = self.actions.get(frozenset(), idle)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset().union(*self.actions, *self._axes)

    def action(self, held: Collection[str]) -> Any:
        """Return the action of these keys; without any, the one that does least."""
        if isinstance(self._space, spaces.Box):
            low, high = self._space.low.ravel(), self._space.high.ravel()
            action = np.array(self._idle, self._space.dtype).ravel()
            for number, (up, down) in enumerate(self._axes):
                if (up in held) != (down in held):
                    action[number] = high[number] if up in held else low[number]
            return action.reshape(self._space.shape)
        chosen = [keys for keys in self.actions if keys and keys <= set(held)]
        return self.actions[max(chosen, key=len)] if chosen else self._idle


def _names(keys: Any) -> frozenset[str]:
    return frozenset(chr(key) if isinstance(key, int) else key for key in keys)


class Keyboard:
    """An expert for `surreal.envs.wrappers.intervention.Intervention`; its window shows what the environment draws.

    Args:
        env: made with render_mode "rgb_array".
        always: whether the person chooses every action; otherwise, only while a key is held, or after Tab.

    Raises:
        EnvError: pygame is missing, or the environment draws no images or has no keys; at the first step, which opens
            the window, there is no display.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], *, always: bool = False) -> None:
        try:
            import pygame
        except ImportError:
            raise EnvError("a keyboard needs pygame (pip install pygame); or use --expert module:Class") from None
        self._pygame, self._env, self._always = pygame, env, always
        self.controls = Controls(env)
        if env.render_mode != "rgb_array":
            raise EnvError(f"a keyboard needs an environment that draws images; its render_mode is {env.render_mode}")
        self._screen: Any = None
        self._held: set[str] = set()
        self._keeps = False
        self._mark: str | None = None
        self._period_s = 1.0 / float(env.metadata.get("render_fps") or _DEFAULT_FPS)
        self._next_s = 0.0

    @property
    def help(self) -> str:
        """The keys, in one line."""
        return HELP.format(keys=", ".join(sorted(self.controls.keys)))

    def reset(self, obs: Any) -> None:
        self._mark = None

    def __call__(self, obs: Any, action: Any) -> Any:
        """Show the environment, wait for its next frame, and return the person's action, if there is one. Raises
        `StoppedError` if the window was closed, or Esc pressed.
        """
        self._show()
        time.sleep(max(0.0, self._next_s - time.monotonic()))
        self._next_s = time.monotonic() + self._period_s
        self._read_events()
        held = self._held & self.controls.keys
        return self.controls.action(held) if self._always or self._keeps or held else None

    def mark(self) -> Any:
        """Return the mark whose key was pressed, once."""
        mark, self._mark = self._mark, None
        return mark

    def _show(self) -> None:
        pygame, frame = self._pygame, np.asarray(self._env.render())
        if self._screen is None:
            try:
                pygame.display.init()
                self._screen = pygame.display.set_mode((frame.shape[1], frame.shape[0]))
            except pygame.error as error:
                raise EnvError(f"there is no display for a window: {error}; use --expert module:Class") from error
            pygame.display.set_caption("surreal")
        self._screen.blit(pygame.surfarray.make_surface(frame.swapaxes(0, 1)), (0, 0))
        pygame.display.flip()

    def _read_events(self) -> None:
        pygame = self._pygame
        for event in pygame.event.get():
            if event.type not in (pygame.QUIT, pygame.KEYDOWN, pygame.KEYUP):
                continue
            name = _QUIT if event.type == pygame.QUIT else pygame.key.name(event.key)
            if event.type == pygame.KEYUP:
                self._held.discard(name)
            elif name == _QUIT:
                raise StoppedError("the window was closed")
            elif name in MARKS:
                self._mark = MARKS[name]
            elif name == _HOLD:
                self._keeps = not self._keeps
            else:
                self._held.add(name)
