"""What a role process does when its watchdog finds that it hangs, as `run.on_hang` says."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable

from surreal.config import Config
from surreal.distributed.telemetry.telemetry import Telemetry
from surreal.run.process.watchdog import Watchdog

#: For the last of the log to leave, s: what hangs may be the telemetry itself.
_LAST_WORDS_S = 3.0


def make_watchdog(
    config: Config, telemetry: Telemetry, stop: threading.Event, end_run: Callable[[str], object]
) -> Watchdog:
    """Make the watchdog of a process.

    Args:
        config: says what to do, and after how long.
        telemetry: of the process; shows what hangs.
        stop: while it is set the process drains, and whoever waits for that decides.
        end_run: ends the run for this reason, where no launcher does.
    """

    def show(text: str) -> None:
        telemetry.hangs_in = text

    def act(sentence: str) -> None:
        if stop.is_set():
            return
        ends = config.run.on_hang == "end"
        _within(_LAST_WORDS_S, lambda: end_run(sentence) if ends else None)
        _within(_LAST_WORDS_S, telemetry.step)
        sys.stderr.write(f"error: {sentence}\n")
        sys.stderr.flush()
        if ends:
            os._exit(1)
        os.kill(os.getpid(), signal.SIGKILL)  # a launcher starts again what a signal ended

    return Watchdog(config.run.hang_timeout_s, show=show, act=None if config.run.on_hang == "warn" else act)


def _within(timeout_s: float, action: Callable[[], object]) -> None:
    """Do something, and do not wait longer for it than this."""
    thread = threading.Thread(target=action, name="last-words", daemon=True)
    thread.start()
    thread.join(timeout_s)
