"""`TerminalView`: an environment that is drawn on a terminal while it is played, at its own pace."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, SupportsFloat

import gymnasium

from surreal.base.errors import EnvError
from surreal.envs.terminal.screen import Screen

#: Steps a second of an environment that does not say how many it is made for.
_DEFAULT_FPS = 30.0


class TerminalView(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Draws each step, and takes as long for it as the environment's `render_fps` says.

    Args:
        env: renders "rgb_array" or "ansi".
        screen: which is drawn on.
        clock: seconds, monotonic.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        screen: Screen,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        super().__init__(env)
        self._screen = screen
        self._clock = clock
        self._sleep = sleep
        self._interval_s = 1.0 / float(env.metadata.get("render_fps") or _DEFAULT_FPS)
        self._due_s = -float("inf")
        self._episodes, self._steps = -1, 0
        self._return = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        found = super().reset(seed=seed, options=options)
        self._episodes += 1
        self._steps, self._return = 0, 0.0
        self._draw()
        return found

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take a step."""
        found = super().step(action)
        self._steps += 1
        self._return += float(found[1])
        self._draw()
        return found

    def _draw(self) -> None:
        now = self._clock()
        if now < self._due_s:
            self._sleep(self._due_s - now)
        # Who comes late does not hurry afterwards.
        self._due_s = max(now, self._due_s) + self._interval_s
        picture = self.env.render()
        self._screen.show(picture, f"episode {self._episodes}  step {self._steps}  return {self._return:g}")


def choose_mode(make: Callable[[str], gymnasium.Env[Any, Any]], modes: Any) -> str:
    """Find the way in which an environment can be drawn on a terminal: as images, else as text.

    Args:
        make: makes it with a render mode.
        modes: that it has.

    Raises:
        EnvError: there is no way.
    """
    problem = f"it has the render modes {', '.join(map(str, modes)) or 'none'}"
    for mode in ("rgb_array", "ansi"):
        if mode in modes:
            env = make(mode)
            try:
                env.reset()
                env.render()
                return mode
            except Exception as error:  # of whatever an environment draws with
                problem = str(error)
            finally:
                env.close()
    raise EnvError(f"the environment cannot be drawn in a terminal: {problem}")
