"""A window that is opened and closed while an environment goes on. SDL's dummy stands for a display."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pygame
import pytest

from surreal.base.errors import EnvError
from surreal.envs import make_env
from surreal.envs.window import ShownEnv, Window


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Pictures that were shown, as [width, height, 3]."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    shown: list[Any] = []
    flip = pygame.display.flip

    def note() -> None:
        shown.append(pygame.surfarray.array3d(pygame.display.get_surface()))
        flip()

    monkeypatch.setattr(pygame.display, "flip", note)
    monkeypatch.setattr(pygame.time, "Clock", type("Clock", (), {"tick": lambda self, fps: None}))
    return shown


def test_small_frames_are_shown_large_and_gray_ones_in_gray(frames: list[Any]) -> None:
    window = Window("test")
    frame = np.zeros((120, 160), np.uint8)
    frame[:60] = 200
    assert window.show(frame)
    assert frames[0].shape == (480, 360, 3)
    assert frames[0][0, 179].tolist() == [200] * 3
    assert frames[0][0, 180].tolist() == [0] * 3
    window.close()
    assert not window.is_open
    assert window.show(np.full((400, 300, 3), 7, np.uint8)), "a closed window opens again"
    assert frames[1].shape == (300, 400, 3)
    window.close()


def test_an_environment_is_shown_while_that_is_wanted(frames: list[Any]) -> None:
    wanted = [False]
    env = ShownEnv(make_env("CartPole-v1", render_mode="rgb_array"), lambda: wanted[0])
    env.reset(seed=0)
    env.step(0)
    assert frames == []
    wanted[0] = True
    env.step(1)
    env.reset()
    assert len(frames) == 2
    assert pygame.display.get_surface() is not None
    wanted[0] = False
    env.step(0)
    assert len(frames) == 2
    assert pygame.display.get_surface() is None
    # Whoever closes the window by hand has it closed until it is wanted anew.
    wanted[0] = True
    env.step(0)
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    for _ in range(2):
        env.step(0)
    assert len(frames) == 3
    wanted[0] = False
    env.step(0)
    wanted[0] = True
    env.step(0)
    assert len(frames) == 4
    env.close()
    assert pygame.display.get_surface() is None


@pytest.mark.parametrize("driver", ["nothing", "offscreen"])
def test_without_a_display_the_environment_goes_on(
    driver: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if driver == "offscreen":  # what SDL chooses by itself where there is nothing else
        monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
        monkeypatch.setattr(pygame.display, "get_driver", lambda: driver)
    else:
        monkeypatch.setenv("SDL_VIDEODRIVER", driver)
    caplog.set_level(logging.WARNING)
    plain = make_env("CartPole-v1")
    monkeypatch.setattr(plain.unwrapped, "render", lambda: np.zeros((4, 4, 3), np.uint8))
    env = ShownEnv(plain, lambda: True)
    env.reset(seed=0)
    env.step(0)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "a window cannot be opened here" in line
    required = ShownEnv(plain, lambda: True, is_required=True)
    with pytest.raises(EnvError, match="a window cannot be opened here"):
        required.reset()


def test_a_game_in_human_mode_is_shown_at_every_step(frames: list[Any]) -> None:
    env = make_env("surreal/ViZDoom-v0", kwargs={"scenario": "basic"}, render_mode="human")
    env.reset(seed=0)
    env.step(1)
    assert [frame.shape for frame in frames] == [(480, 360, 3)] * 2
    assert frames[0].std() > 0
    env.close()
    assert pygame.display.get_surface() is None
