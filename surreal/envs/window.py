"""A window that shows an environment, and can be opened and closed at any time."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from numpy.typing import NDArray

from surreal.base.errors import EnvError

logger = logging.getLogger(__name__)

#: Frames with fewer rows are enlarged.
_LEAST_HEIGHT = 360


class Window:
    """Shows frames, at most `fps` per second, for which `show` waits; it opens with the first one."""

    def __init__(self, title: str, fps: float = 30.0) -> None:
        self._title, self._fps = title, fps
        self._pygame: Any = None
        self._surface: Any = None
        self._clock: Any = None

    @property
    def is_open(self) -> bool:
        return self._surface is not None

    def show(self, frame: NDArray[np.uint8]) -> bool:
        """Show a frame, [height, width, 3] or [height, width]; returns False after the user has closed the window."""
        image = np.repeat(frame[..., None], 3, axis=2) if frame.ndim == 2 else frame
        scale = -(-_LEAST_HEIGHT // image.shape[0])
        size = (image.shape[1] * scale, image.shape[0] * scale)
        if self._surface is None:
            self._open(size)
        pygame = self._pygame
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            self.close()
            return False
        picture = pygame.surfarray.make_surface(image.swapaxes(0, 1))
        self._surface.blit(pygame.transform.scale(picture, size), (0, 0))
        pygame.display.flip()
        self._clock.tick(self._fps)
        return True

    def close(self) -> None:
        """Close the window; the next frame opens it again."""
        if self._surface is not None:
            self._surface = None
            self._pygame.display.quit()

    def _open(self, size: tuple[int, int]) -> None:
        try:
            self._pygame = importlib.import_module("pygame")
        except ImportError as error:
            raise EnvError("a window needs pygame, which is not installed; pip install -e '.[video]'") from error
        try:
            self._pygame.display.init()
            if self._pygame.display.get_driver() == "offscreen" and "SDL_VIDEODRIVER" not in os.environ:
                raise EnvError("a window cannot be opened here: there is no display")
            self._surface = self._pygame.display.set_mode(size)
        except self._pygame.error as error:
            raise EnvError(f"a window cannot be opened here: {error}; is there a display?") from error
        self._pygame.display.set_caption(self._title)
        self._clock = self._pygame.time.Clock()


class ShownEnv(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Shows an environment in a window while `is_wanted` returns True.

    Args:
        env: made with render_mode "rgb_array".
        is_wanted: called after every step.
        is_required: raise if the window cannot be opened; otherwise log it, and try again when a window is next wanted.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], is_wanted: Callable[[], bool], *, is_required: bool = False
    ) -> None:
        super().__init__(env)
        self._is_wanted = is_wanted
        self._is_required = is_required
        self._window = Window(env.spec.id if env.spec else "environment", env.metadata.get("render_fps", 30))
        self._is_over = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        result = self.env.reset(seed=seed, options=options)
        self._draw()
        return result

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self._draw()
        return result

    def close(self) -> None:
        self._window.close()
        super().close()

    def _draw(self) -> None:
        if not self._is_wanted():
            self._window.close()
            self._is_over = False
        elif not self._is_over:
            frame: Any = self.env.render()
            try:
                self._is_over = not self._window.show(np.asarray(frame))
            except EnvError as error:
                if self._is_required:
                    raise
                logger.warning("%s", error)
                self._is_over = True
