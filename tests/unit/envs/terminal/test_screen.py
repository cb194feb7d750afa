"""A terminal that is drawn on: its size, its pace, and what is left on it afterwards."""

from __future__ import annotations

import io
import os
import signal
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

from surreal.base.errors import EnvError
from surreal.envs.terminal import Colors, Screen, TerminalView, choose_mode, open_screen

LEFT = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Counting(gymnasium.Env[Any, Any]):
    """Shows how many steps were taken, as an image and as text."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}
    observation_space = gymnasium.spaces.Discrete(100)
    action_space = gymnasium.spaces.Discrete(2)
    can_draw = True

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.count = 0

    def reset(self, **_: Any) -> Any:
        self.count = 0
        return 0, {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return self.count, 0.5, False, False, {}

    def render(self) -> Any:
        if self.render_mode == "ansi":
            return f"{self.count} steps\n"
        if not self.can_draw:
            raise RuntimeError("pygame is not installed")
        return np.full((4, 4, 3), self.count, np.uint8)


def make_screen(columns: int = 20, lines: int = 5) -> tuple[Terminal, Screen]:
    stream = Terminal()
    return stream, Screen(stream, Colors.TRUE, size=lambda: os.terminal_size((columns, lines)))


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, SystemExit])
def test_the_terminal_is_given_back_and_what_was_said_stands_on_it(error: type[BaseException] | None) -> None:
    stream, screen = make_screen()
    try:
        with screen:
            screen.show("a\nb", "step 1")
            screen.say("episode 0: return 3")
            if error is not None:
                raise error
    except (KeyboardInterrupt, SystemExit):
        pass
    written = stream.getvalue()
    assert written.startswith("\x1b[?1049h\x1b[?25l")
    assert "\x1b[Ha\x1b[K\r\nb\x1b[K\r\n\x1b[0mstep 1\x1b[J" in written
    assert written.endswith(LEFT + "episode 0: return 3\n")


def test_a_signal_that_ends_the_program_gives_it_back_as_well() -> None:
    stream, screen = make_screen()
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ending, screen:
        signal.raise_signal(signal.SIGTERM)
    assert ending.value.code == 143
    assert stream.getvalue().endswith(LEFT)
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_picture_is_as_large_as_the_terminal_is_now() -> None:
    size = [os.terminal_size((20, 5))]
    stream = Terminal()
    screen = Screen(stream, Colors.TRUE, size=lambda: size[0])
    for size[0], wanted in ((os.terminal_size((20, 5)), 4), (os.terminal_size((80, 24)), 23)):
        stream.seek(0)
        stream.truncate()
        screen.show(np.zeros((50, 50, 3), np.uint8), "a line that is longer than so narrow a terminal")
        picture, _, below = stream.getvalue().rpartition("\r\n")
        assert picture.count("\r\n") + 1 == wanted
        assert picture.count("▀") == wanted * min(size[0].columns, 2 * wanted)
        assert len(below.removeprefix("\x1b[0m").removesuffix("\x1b[J")) <= size[0].columns
    screen.show("1\n2\n3\n" * 20, "")  # text is cut to it
    with pytest.raises(EnvError, match=r"renders an array \(50, 50\); a terminal shows"):
        screen.show(np.zeros((50, 50)), "")
    with pytest.raises(EnvError, match="renders a NoneType"):
        screen.show(None, "")


def test_episodes_are_drawn_at_their_own_pace() -> None:
    stream, screen = make_screen(columns=60)
    screen.title = "version 3"
    now, slept = [10.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    env = TerminalView(Counting("ansi"), screen, clock=lambda: now[0], sleep=sleep)
    for _ in range(2):
        env.reset()
        for _ in range(3):
            env.step(0)
            now[0] += 0.1  # the policy's own time
    assert stream.getvalue().count("\x1b[H") == 8
    assert "3 steps\x1b[K\r\n\x1b[0mversion 3  episode 1  step 3  return 1.5" in stream.getvalue()
    np.testing.assert_allclose(slept, [0.25, 0.15, 0.15, 0.15, 0.25, 0.15, 0.15])  # 4 a second
    now[0] += 5.0  # what was late is not made up for
    slept.clear()
    env.step(0)
    env.step(0)
    np.testing.assert_allclose(slept, [0.25])


@pytest.mark.parametrize(("modes", "can_draw", "wanted"), [
    (["ansi", "rgb_array"], True, "rgb_array"),
    (["ansi", "rgb_array"], False, "ansi"),
    (["ansi", "human"], True, "ansi"),
])  # fmt: skip
def test_text_is_drawn_where_there_is_no_image(
    modes: list[str], can_draw: bool, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "can_draw", can_draw)
    assert choose_mode(Counting, modes) == wanted


def test_what_cannot_be_drawn_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counting, "can_draw", False)
    with pytest.raises(EnvError, match="cannot be drawn in a terminal: pygame is not installed"):
        choose_mode(Counting, ["rgb_array"])
    with pytest.raises(EnvError, match="it has the render modes human"):
        choose_mode(Counting, ["human"])


def test_the_terminal_says_what_it_can_show() -> None:
    def colors(**environ: str) -> Colors:
        return open_screen(Terminal(), environ)._colors

    assert colors(TERM="xterm-256color") is Colors.MANY
    assert colors(TERM="xterm-256color", COLORTERM="truecolor") is Colors.TRUE
    assert colors(TERM="xterm-direct") is Colors.TRUE
    assert colors(TERM="xterm", COLORTERM="truecolor", NO_COLOR="1") is Colors.NONE
    with pytest.raises(EnvError, match="TERM is 'dumb'"):
        colors(TERM="dumb")
    with pytest.raises(EnvError, match="the output goes elsewhere; videos need no terminal: --record DIR"):
        open_screen(io.StringIO(), {"TERM": "xterm"})
