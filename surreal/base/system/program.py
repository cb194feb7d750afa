"""Ends a small program of your own as a person expects it: Ctrl-C and what Surreal explains cost one line each."""

from __future__ import annotations

import argparse
import inspect
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from surreal.base.errors import SurrealError
from surreal.base.system.logs import setup_logging

#: What a shell gives a program that SIGINT ended.
INTERRUPTED = 130
#: A destructor that an interrupt has met is over by then, s.
_AGAIN_S = 0.05


def run_program(name: str, body: Callable[..., object], *, log_level: str = "INFO") -> int:
    """Call `body`, with the log on stderr, and give the program's exit code.

        def main(steps: int = 1000, is_shown: bool = False) -> None:    # python my_program.py --steps 500 --is-shown
            ...

        if __name__ == "__main__":
            sys.exit(run_program("agent", main))

    Args:
        name: of the program, shown in every line of the log.
        body: closes what it has opened, in `finally` or a `with`, also at Ctrl-C. Its parameters, all with defaults
            that are numbers, texts or False, are options on the command line; `--help` shows them below the docstring
            of its module.
        log_level: least severe level that is shown.

    Returns:
        0 when it has ended, 1 after an error that Surreal explains, 130 after Ctrl-C. Other exceptions are a program's
        own, and are shown in full.

    Raises:
        ValueError: a parameter of `body` has no default.
    """
    options = _read_options(body)
    setup_logging(log_level, name)
    try:
        with _heeded_interrupts():
            body(**options)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return INTERRUPTED
    except SurrealError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


@contextmanager
def _heeded_interrupts() -> Iterator[None]:
    """Let no Ctrl-C be lost: one that comes inside of a destructor is printed and forgotten by Python."""
    former, is_over, main = sys.unraisablehook, threading.Event(), threading.get_ident()

    def interrupt_again() -> None:
        if not is_over.wait(_AGAIN_S):
            signal.pthread_kill(main, signal.SIGINT)

    def hook(happened: sys.UnraisableHookArgs) -> None:
        if issubclass(happened.exc_type, KeyboardInterrupt):
            threading.Thread(target=interrupt_again, daemon=True).start()
        else:
            former(happened)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        is_over.set()
        sys.unraisablehook = former


def _read_options(body: Callable[..., object]) -> dict[str, Any]:
    """Read the command line, if `body` has parameters; what makes no sense ends the program with a line."""
    parameters = inspect.signature(body).parameters.values()
    if not parameters:
        return {}
    text, layout = getattr(sys.modules.get(body.__module__), "__doc__", None), argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=text, formatter_class=layout, allow_abbrev=False)
    for parameter in parameters:
        option, default = f"--{parameter.name.replace('_', '-')}", parameter.default
        if default is parameter.empty:
            raise ValueError(f"{body} has no default for {parameter.name}, which is to be an option")
        if default is False:
            parser.add_argument(option, action="store_true")
        else:
            parser.add_argument(option, type=type(default), default=default, help=f"default: {default}")
    return vars(parser.parse_args())
