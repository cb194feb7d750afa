"""Small programs around Surreal: one line for Ctrl-C and for expected errors, and the command that adds an extra."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

from surreal.base.errors import SurrealError
from surreal.base.system.logs import setup_logging

DISTRIBUTION = "surreal-rl"
#: Exit code of a program that SIGINT ended.
INTERRUPTED = 130
#: A destructor that caught an interrupt has ended after this time, s.
_AGAIN_S = 0.05


def run_program(name: str, body: Callable[..., object], *, log_level: str = "INFO") -> int:
    """Call `body` with the log on stderr, and return the program's exit code.

        def main(steps: int = 1000, is_shown: bool = False) -> None:    # python my_program.py --steps 500 --is-shown
            ...

        if __name__ == "__main__":
            sys.exit(run_program("agent", main))

    Args:
        name: name of the program, shown in every line of the log.
        body: function to run; it closes its resources in `finally` or a `with`, also at Ctrl-C. Its parameters become
            options of the command line, as Typer makes them from the annotation, or else from the type of the default.
            `--help` shows its docstring.
        log_level: least severe level that is shown.

    Returns:
        0 when it has ended, 1 after a `SurrealError`, 130 after Ctrl-C. Other exceptions are shown in full.

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


def install_command(extra: str) -> str:
    """Return the command that adds an extra of setup.py.

    It installs from where this installation came from, which pip has recorded (PEP 610): a clone, a file or an index.
    """
    from importlib import metadata

    try:
        origin = json.loads(metadata.distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
        url, is_editable = str(origin.get("url", "")), bool(origin.get("dir_info", {}).get("editable"))
        is_folder = "dir_info" in origin
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        url, is_editable, is_folder = "", False, False
    if is_folder:
        folder = unquote(urlsplit(url).path)
        return f"pip install {'-e ' if is_editable else ''}{shlex.quote(f'{folder}[{extra}]')}"
    if url:
        return f"pip install {shlex.quote(f'{DISTRIBUTION}[{extra}] @ {url}')}"
    return f"pip install {shlex.quote(f'{DISTRIBUTION}[{extra}]')}"


@contextmanager
def _heeded_interrupts() -> Iterator[None]:
    """Repeat each Ctrl-C that comes inside a destructor, which Python prints and forgets."""
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
    import inspect

    parameters = inspect.signature(body).parameters.values()
    if not parameters:
        return {}

    from surreal.base.ranges import Unreadable, annotations_of
    from surreal.base.system.command_line import call_with_options

    annotations = annotations_of(body)
    options = []
    for parameter in parameters:
        default = parameter.default
        if default is parameter.empty:
            raise ValueError(f"{body} has no default for {parameter.name}, which becomes an option")
        kind = annotations.get(parameter.name, type(default))
        kind = type(default) if isinstance(kind, Unreadable) else kind
        options.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=kind))
    # A program's text is shown as it is written: `\b` keeps the lines of a paragraph.
    text = getattr(sys.modules.get(body.__module__), "__doc__", None) or ""
    text = "\n\n".join(f"\b\n{paragraph}" for paragraph in inspect.cleandoc(text).split("\n\n"))
    return call_with_options(dict, options, sys.argv[1:], text=text, is_plain=True)
