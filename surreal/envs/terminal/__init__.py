"""Environments drawn in a terminal: `view.TerminalView` around one, on a `screen.Screen`; no window, no display."""

from surreal.envs.terminal.frames import Colors
from surreal.envs.terminal.screen import Screen, open_screen
from surreal.envs.terminal.view import TerminalView

__all__ = ["Colors", "Screen", "TerminalView", "open_screen"]
